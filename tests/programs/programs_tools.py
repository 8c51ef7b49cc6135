# SPDX-License-Identifier: BSD-2-Clause
"""Tools of the command line that make processes, pipes, terminals and sockets for others."""
from recipe import Recipe

NINJA = r'''
mkdir src
for i in $(seq 40); do printf 'int f%d(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * %d; return s; }\n' $i $i > src/f$i.c; done
{ echo '#include <stdio.h>'; for i in $(seq 40); do echo "int f$i(int);"; done; echo 'int main(void) { int s = 0;'; for i in $(seq 40); do echo "s += f$i($i);"; done; echo 'printf("%d\n", s); }'; } > src/main.c
printf 'cmake_minimum_required(VERSION 3.10)\nproject(x C)\nfile(GLOB f ${CMAKE_SOURCE_DIR}/*.c)\nadd_executable(x ${f})\n' > src/CMakeLists.txt
cmake -G Ninja -S src -B out > log 2>&1 || cat log
ninja -j3 -C out > log 2>&1 || cat log
out/x
'''

PACK = r'''
seq 1 300000 | awk '{ print $1, $1 * 7919 % 1000003 }' > data
sort --parallel=2 -S 8M -k2,2n data > sorted
xz -T2 -1 -k sorted; zstd -q -T2 -9 sorted -o sorted.zst; pigz -k -p 2 sorted
xz -dc sorted.xz | md5sum; zstd -qdc sorted.zst | md5sum; pigz -dc sorted.gz | md5sum
'''

RSYNC = r'''
mkdir from
for i in $(seq 300); do head -c $((i * 997)) /dev/zero | tr '\0' "$((i % 10))" > from/f$i; done
rsync -a --bwlimit=20m from/ to/
for i in $(seq 1 7 300); do echo more >> from/f$i; done
rsync -a --delete --checksum from/ to/
diff -r from to && echo same
cat to/* | md5sum
'''

PARALLEL = r'''
seq 60 | parallel --will-cite -k -j4 'sleep 0.0{}; echo {} $(({} * {}))'
seq 60 | xargs -P 4 -n 5 sh -c 'sleep 0.1; echo $(($1+$2+$3+$4+$5))' x | sort -n
'''

EXPECT = r'''
cat > e <<'EOF'
log_user 0
spawn bash --norc --noediting
send "PS1=; stty -echo\r"
for {set i 0} {$i < 80} {incr i} {
    send "echo r-\$(($i * 3))-\r"
    expect -re {r-(\d+)-}
    puts $expect_out(1,string)
    after 20
}
send "exit\r"
expect eof
puts [lindex [wait] 3]
EOF
expect e
'''

SCREEN = r'''
export SCREENDIR=$SOCKETS/s; mkdir -m 700 $SCREENDIR
printf 'i=0\nwhile [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done > inner\ntty > tty\n' > job
screen -dmS x bash job
until [ -s tty ]; do sleep 0.05; done
tail -1 inner
sed 's/[0-9]*$//' tty
'''

TCL = r'''
cat > t <<'EOF'
set n 0
proc tick {} { global n; incr n; if {$n == 100} { set ::done 1 } else { after 20 tick } }
set p [open "|cat" r+]; fconfigure $p -buffering line -blocking 0
fileevent $p readable { if {[gets $p l] >= 0} { puts "$l" } }
proc say {i} { puts $::p "said $i"; if {$i < 50} { after 37 say [expr {$i + 1}] } }
tick; say 0
vwait done
after 300 {set ::end 1}; vwait end
puts $n
EOF
tclsh t
'''

SOCAT = r'''
socat TCP-LISTEN:$PORT,fork,reuseaddr,bind=127.0.0.1 EXEC:cat & a=$!
socat UNIX-LISTEN:$SOCKETS/u,fork TCP:127.0.0.1:$PORT & b=$!
until [ -S $SOCKETS/u ] && (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
for i in $(seq 30); do echo line $i | socat -t 5 - UNIX:$SOCKETS/u; done
kill $a $b; wait; echo ended
'''

SHELLS = r'''
zsh -fc 'for i in {1..40}; do echo zsh $i $(echo sub $i); sleep 0.02; done; coproc cat; print -p hello; read -p x; echo $x; exit'
fish --no-config -c 'for i in (seq 30); echo fish $i (echo sub); sleep 0.02; end'
ksh93 -c 'for i in {1..30}; do print ksh $i $(print sub); sleep 0.02; done'
'''

INOTIFY = r'''
mkdir d
inotifywait -q -m -e create --format %f d > seen & w=$!
until grep -q inotify /proc/$w/fdinfo/3 2> /dev/null; do sleep 0.02; done
for i in $(seq 400); do : > d/f$i; until grep -qx f$i seen; do sleep 0.01; done; done
kill $w; wait $w
cat seen
'''

FFMPEG = r'''
ffmpeg -nostdin -v error -f lavfi -i testsrc=size=320x240:rate=25:duration=8 -c:v mpeg4 -threads 2 -q:v 3 -bitexact -y out.avi
ffmpeg -nostdin -v error -i out.avi -f framemd5 - | md5sum
'''

STRACE = r'''
strace -f -o trace sh -c 'for i in $(seq 60); do echo $i | cat; sleep 0.05; done'
'''

PROGRAMS = [
    Recipe('cmake-ninja', NINJA, needs=['cmake', 'ninja', 'gcc']),
    Recipe('packers', PACK, needs=['xz', 'zstd', 'pigz']),
    Recipe('rsync', RSYNC, needs=['rsync']),
    Recipe('parallel', PARALLEL, needs=['parallel']),
    Recipe('expect', EXPECT, needs=['expect']),
    Recipe('screen', SCREEN, needs=['screen']),
    Recipe('tcl', TCL, needs=['tclsh']),
    Recipe('socat', SOCAT, needs=['socat']),
    Recipe('shells', SHELLS, needs=['zsh', 'fish', 'ksh93']),
    Recipe('inotifywait', INOTIFY, needs=['inotifywait']),
    Recipe('ffmpeg', FFMPEG, needs=['ffmpeg']),
    Recipe('strace', STRACE, needs=['strace'], refused='traces process [0-9]+, which is of the job, too, by PTRACE_SEIZE, as strace does'),
]
