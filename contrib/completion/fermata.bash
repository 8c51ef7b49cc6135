# SPDX-License-Identifier: BSD-2-Clause
# Completion of the fermata command for bash: commands, options, running jobs, then files. Source it, or put it into
# /usr/share/bash-completion/completions/fermata.

_fermata_jobs()
{
	local dir job
	for dir in ${FERMATA_RUNDIR:-${XDG_RUNTIME_DIR:+"$XDG_RUNTIME_DIR/fermata"} "/tmp/fermata-$UID"}; do
		for job in "$dir"/*/sock; do
			[ -S "$job" ] && basename "${job%/sock}"
		done
	done
}

# The word behind which the launched program's own words begin, or nothing.
_fermata_program_at()
{
	local i=2
	while [ $i -lt "$COMP_CWORD" ]; do
		case ${COMP_WORDS[i]} in
		--) echo $((i + 1)); return ;;
		--*=*) ;;
		--job | --dir | --interval | --keep | --compress | --rdma | --timeout) i=$((i + 1)) ;;
		-*) ;;
		*) echo "$i"; return ;;
		esac
		i=$((i + 1))
	done
}

_fermata()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} at
	local commands="launch checkpoint restart status list inspect verify core check coordinator --help --version"
	local options="--help"

	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
		return
	fi
	if [ "$command" = launch ]; then
		at=$(_fermata_program_at)
		if [ -n "$at" ] && declare -F _command_offset >/dev/null; then
			_command_offset "$at"
			return
		fi
	fi
	case $previous in
	--job) mapfile -t COMPREPLY < <(compgen -W "$(_fermata_jobs)" -- "$current"); return ;;
	--dir | --with) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
	--rdma) mapfile -t COMPREPLY < <(compgen -W "auto system soft" -- "$current"); return ;;
	--text) mapfile -t COMPREPLY < <(compgen -W "ref save" -- "$current"); return ;;
	--external) mapfile -t COMPREPLY < <(compgen -W "fail error reconnect-listen" -- "$current"); return ;;
	--compress) mapfile -t COMPREPLY < <(compgen -W "none" -- "$current"); return ;;
	esac
	case $command in
	launch) options+=" --job --dir --interval --keep --compress --rdma --files --external --text --with --timeout --listen --coordinator --no-remote" ;;
	coordinator) options+=" --job --dir --interval --keep --compress --rdma --files --external --text --timeout --listen --foreground" ;;
	checkpoint) options+=" --stop --files --external --text --json $(_fermata_jobs)" ;;
	status) options+=" --json --watch $(_fermata_jobs)" ;;
	restart) options+=" --rdma --files --map --capsule --host --hosts --listen --coordinator --part --no-verify --pause --gdb" ;;
	list | inspect | verify | core | check) options+=" --json" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
	case $command in
	launch | check) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$current") ;;
	restart | list | verify) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current") ;;
	inspect | core) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
	esac
}

complete -o filenames -F _fermata fermata
