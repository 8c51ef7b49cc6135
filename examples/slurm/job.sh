#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A Slurm job that outlives its time limit: sbatch examples/slurm/job.sh PROGRAM [ARGUMENTS]
#
# A minute before the limit Slurm sends SIGUSR1 to this script, which passes it on: fermata takes a checkpoint, ends the job, and exits with
# 99. Then the script asks for the job to be queued again; the next start restarts it from its newest checkpoint, and so on until
# the program itself ends. It may start on another node: the directory of checkpoints, and the program's own, have to be seen from all.
#
# A program that fails is brought back at once, from a checkpoint that is at most ten minutes old; a node that fails, by Slurm (--requeue), from the same.
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --nodes=1

checkpoints=$PWD/fermata-$SLURM_JOB_ID

if [ -n "$(fermata list "$checkpoints" 2>/dev/null)" ]; then
	set -- fermata restart "$checkpoints"
else
	set -- fermata launch --job "slurm-$SLURM_JOB_ID" --dir "$checkpoints" --interval 600 --keep 3 \
		--on-failure restart --on-signal USR1 -- "$@"
fi

# A shell handles a signal only when what it waits for is in the background.
"$@" &
pid=$!
trap 'kill -USR1 $pid' USR1
trap 'kill -TERM $pid' TERM
wait $pid
status=$?
while kill -0 $pid 2>/dev/null; do # the wait was cut short by a signal
	wait $pid
	status=$?
done

if [ $status = 99 ]; then
	scontrol requeue "$SLURM_JOB_ID"
	status=0
fi
exit $status
