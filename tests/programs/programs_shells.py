# SPDX-License-Identifier: BSD-2-Clause
"""Shells with jobs, and what they start by the thousand: make with gcc, filters in pipes."""
from recipe import Recipe

JOBS = r'''
set -m
worker() { local sum=0; for ((i = 0; i < 30000; i++)); do ((sum += i * $1 % 7)); done; echo "worker $1: $sum"; }
for round in 1 2 3; do
    for n in 1 2 3 4; do worker "$n" > "part-$n" & done
    wait
    cat part-1 part-2 part-3 part-4
done
trap 'echo "caught USR1"' USR1
kill -USR1 $$
coproc adder { while read -r a b; do echo $((a + b)); done; }
pid=$adder_PID
for ((i = 0; i < 3000; i++)); do echo "$i $i" >&"${adder[1]}"; read -r answer <&"${adder[0]}"; ((answer == 2 * i)) || echo "wrong at $i"; done
eval "exec ${adder[1]}>&-"
wait "$pid"
(sleep 1000) &
kill -STOP %%; kill -CONT %%; kill %%
wait %% 2> /dev/null
echo "status $?"
for round in 1 2 3 4; do
    worker "$round" > part-5 &
    kill -STOP %%
    until jobs -s | grep -o Stopped; do :; done
    for ((i = 0; i < 20000; i++)); do :; done
    kill -CONT %%; wait %%
    cat part-5
done
while read -r line; do echo "$line"; done < <(for ((i = 0; i < 2000; i++)); do echo "substituted $i"; done)
'''

# Each line of the loop is some processes of their own.
PROCESSES = r'''
for i in $(seq 250); do
    echo "line $i" | sed 's/line/row/' | tr a-z A-Z
    expr $i \* $i
    (cd / && pwd)
done
'''

FILTERS = r'''
seq 400000 | awk '{ print ($1 * 7919) % 400009, $1 }' | sort -n -k1 | tee sorted | gzip -6 | gunzip | cut -d' ' -f2 | md5sum
md5sum < sorted
split -n l/7 sorted piece.
for f in piece.*; do tac "$f" | rev | paste -s -d, - | cksum; done
find . -name 'piece.*' -print0 | sort -z | xargs -0 -n 1 wc -l
'''

MAKE_INPUT = r'''
for i in $(seq 40); do
    { echo '#include <stdio.h>'; echo '#include <string.h>'; echo '#include <stdlib.h>'
      for j in $(seq 30); do echo "int f_${i}_$j(int x) { char b[64]; snprintf(b, sizeof(b), \"%d\", x * $j); return atoi(b) + (int)strlen(b) % $i; }"; done
    } > "part$i.c"
done
{ for i in $(seq 40); do echo "int f_${i}_7(int);"; done
  echo '#include <stdio.h>'; echo 'int main(void) { int sum = 0;'
  for i in $(seq 40); do echo "sum += f_${i}_7($i);"; done; echo 'printf("%d\n", sum); return 0; }'; } > main.c
'''

MAKEFILE = r'''
objects := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
	@$(CC) -o $@ $^ && echo linked $(words $^)
%.o: %.c
	@$(CC) -O2 -c -o $@ $<
'''

APPEND = 'exec 3>>log; for ((i = 0; i < 60000; i++)); do echo "line $i" >&3; done; echo end'

# It writes into files that it has made to be read only.
GIT = r'''
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main one
cd one
git config user.email someone@example.org
git config user.name someone
git config gc.auto 0
for i in $(seq 60); do
	seq "$i" $((i * 50)) > "file$i"
	git add .
	git commit -q -m "$i"
done
git gc -q
cd ..
git clone -q --no-local one two
cd two
git log --oneline | md5sum
git rev-parse HEAD
'''


PROGRAMS = [
    Recipe('git', GIT, needs=['git']),
    Recipe('bash-jobs', JOBS),
    Recipe('bash-processes', PROCESSES),
    Recipe('bash-append', APPEND, files=['log']),
    Recipe('dash', 'dash ./loop', needs=['dash'], inputs={'loop': 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo $i; ' + PROCESSES}),
    Recipe('filters', FILTERS, files=['sorted']),
    Recipe('make-gcc', 'make -s -j4 && ./program && ls', needs=['make', 'gcc'], inputs={'Makefile': MAKEFILE}, prepare=MAKE_INPUT),
]
