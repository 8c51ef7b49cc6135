# SPDX-License-Identifier: BSD-2-Clause
"""Programs on terminals of their own, and programs that look into others: vim and top inside tmux, gdb, valgrind."""
from recipe import Recipe

# In tmux; shows WINDOW PATTERN waits for what it shows.
TERMINAL = r'''
export TERM=screen SHELL=/bin/bash
t() { tmux -S "$SOCKETS/t" -f /dev/null "$@"; }
shows() { for ((n = 0; n < 1500; n++)); do t capture-pane -p -t "$1" | grep -q -- "$2" && return; sleep 0.02; done; echo "$1 does not show $2"; t capture-pane -p -t "$1"; exit 1; }
'''

# tmux's server is a daemon; a shell, vim and top have a pseudo-terminal each; a second vim is stopped by Ctrl-Z nearly all the time. What they show is waited for before the next key.
TMUX = TERMINAL + r'''
t new-session -d -s s -x 100 -y 30 'bash --norc --noprofile'
shows s '^bash'
t send-keys -t s 'PS1="ready> "; cd /' Enter
shows s '^ready>'
t send-keys -t s:0 'vim -u NONE -N -n "$OLDPWD/kept"' Enter
shows s:0 '^~'
t send-keys -t s:0 i 'written before Ctrl-Z' Escape C-z
shows s:0 'Stopped'
t new-window -t s -n edit "vim -u NONE -N -n text"
shows s:edit '~'
for ((line = 1; line <= 12; line++)); do
    t send-keys -t s:edit G o "line $line of the text" Escape
    shows s:edit "line $line of the text"
done
t send-keys -t s:edit ':%s/line/row/g' Enter ':set ruler' Enter gg
shows s:edit 'row 12 of the text'
t new-window -t s -n look 'top -d 0.2'
shows s:look 'load average'
t resize-window -t s:look -x 90 -y 25
t send-keys -t s:look c
shows s:look 'COMMAND'
t send-keys -t s:look q
for ((i = 1; i <= 10; i++)); do
    t send-keys -t s:0 "echo \$((6 * $i)) answer-\$((7 * $i))" Enter
    shows s:0 "answer-$((7 * i))"
done
t send-keys -t s:0 'cat' Enter; t send-keys -t s:0 'through the terminal' Enter
shows s:0 'through the terminal'
t send-keys -t s:0 C-c; t send-keys -t s:0 'echo "status $?"' Enter
shows s:0 'status 130'
t send-keys -t s:0 'fg' Enter
shows s:0 '^written before Ctrl-Z'
t send-keys -t s:0 o 'and after' Escape ':wq' Enter
shows s:0 '^ready> fg'
t send-keys -t s:0 'jobs; echo "no jobs"' Enter
shows s:0 '^no jobs'
t send-keys -t s:edit ':wq' Enter
for ((n = 0; n < 600; n++)); do t list-windows -t s | grep -q edit || break; sleep 0.02; done
t capture-pane -p -t s:0 | grep -v '^$'
t kill-server
cat text kept
'''

LOOP = r'''
#include <stdio.h>
#include <stdlib.h>
static int work(int n) { int sum = 0; for (int i = 0; i < 20000; i++) sum = (sum * 31 + i * n) % 10007; return sum; }
int main(int argc, char **argv) { long total = 0; for (int n = 0; n < atoi(argv[1]); n++) total += work(n); printf("total %ld\n", total); return 0; }
'''

# Each thread meets a breakpoint; a variable is watched by the processor; a signal is passed on; then line by line to the end.
THREADS = r'''
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
static volatile int watched;
static volatile long taken;
static void on_signal(int sig) { taken += sig; }
static int work(int n) { int sum = 0; for (int i = 0; i < 20000; i++) sum = (sum * 31 + i * n) % 10007; return sum; }
static void *run(void *arg) { long sum = 0; for (int n = 0; n < 400; n++) sum += work(n); *(long *)arg = sum; return 0; }
int main(void) {
    pthread_t threads[3]; long sums[3], total = 0;
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, run, &sums[i]);
    for (int i = 0; i < 3; i++) { pthread_join(threads[i], 0); total += sums[i]; }
    for (int i = 0; i < 100; i++) { watched = i; raise(SIGUSR1); total += work(i); }
    printf("total %ld taken %ld\n", total, taken);
    return 0;
}
'''
COMMANDS = r'''
set debuginfod enabled off
set disable-randomization off
handle SIGUSR1 nostop noprint pass
break work if n % 20 == 19
commands
silent
set $met = $met + 1
continue
end
set $met = 0
tbreak 15
run
printf "met %d\n", $met
delete
watch watched if watched % 10 == 0
commands
silent
printf "watched %d, taken %d\n", watched, taken
continue
end
tbreak 16
continue
next
next
continue
'''

# gdb at its prompt, in a terminal.
PROMPT = TERMINAL + r'''
type() { t send-keys -t s "$1" Enter; shows s "$2"; }
t new-session -d -s s -x 120 -y 50 'gdb -nx -q -ex "set debuginfod enabled off" -ex "set pagination off" ./loop'
shows s '^(gdb)'
type 'break work if n == 50' 'Breakpoint 1 at'
type 'run 200' 'Breakpoint 1, work'
for ((line = 1; line <= 20; line++)); do type "printf \"step $line of %d\\n\", n" "^step $line of 50"; t send-keys -t s stepi Enter; done
type 'delete 1' '(gdb) delete 1'
type 'tbreak work if n == 150' 'Temporary breakpoint 2 at'
type 'continue' 'Temporary breakpoint 2, work'
type 'print $_siginfo.si_signo' ' = 5'
type 'set var n = 0' 'n = 0'
type 'continue' 'exited normally'
t capture-pane -p -t s | grep '^total'
t kill-server
'''

# What gdb has begun, while gdb reads its symbols: longer than a checkpoint tries.
BEGINS = 'is beginning, or ending'
# .. and where the last attempt has met a tmux in a moment of its own.
BEGINS_IN_TMUX = f'{BEGINS}|waits to be accepted'

PROGRAMS = [
    Recipe('tmux-vim-top', TMUX, needs=['tmux', 'vim', 'top'], inputs={'text': 'first\n'}, files=['text', 'kept'],
           passing='was lost in SUSPEND'),  # a shell whose terminal kill-server closes: the kernel ends it
    Recipe('gdb', 'gdb -nx -batch -x commands ./loop 2>&1 | grep -v "^\\[\\|^Using host\\|process "', needs=['gdb', 'gcc'], inputs={
        'loop.c': LOOP, 'commands': 'set debuginfod enabled off\nset disable-randomization off\nbreak work if n % 300 == 299\ncommands\nsilent\nprintf "at %d\\n", n\ncontinue\nend\nrun 3000\n'},
        prepare='gcc -g -O1 -fno-inline loop.c -o loop', passing=BEGINS),
    Recipe('gdb-threads', 'gdb -nx -batch -x commands ./threads 2>&1 | tee all | grep "^met\\|^watched\\|^total"', needs=['gdb', 'gcc'], inputs={'threads.c': THREADS, 'commands': COMMANDS},
           prepare='gcc -g -O0 -pthread threads.c -o threads', passing=BEGINS),
    Recipe('gdb-prompt', PROMPT, needs=['gdb', 'gcc', 'tmux'], inputs={'loop.c': LOOP}, prepare='gcc -g -O1 -fno-inline loop.c -o loop', passing=BEGINS_IN_TMUX),
    # Each refusal takes a second (coordinator/conduct_silent.c).
    Recipe('valgrind', 'valgrind -q --error-exitcode=9 ./loop 30000', needs=['valgrind', 'gcc'], inputs={'loop.c': LOOP}, prepare='gcc -g -O1 loop.c -o loop', refused='runs under valgrind'),
]
