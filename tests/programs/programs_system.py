# SPDX-License-Identifier: BSD-2-Clause
"""What stands in for libc or the system: fakeroot, namespaces, sanitizers; what tries its ways to read and write (fio); and two that compute (GAP, Maxima)."""
from recipe import Recipe

# Its library has stat and __xstat, of which one calls the other, and asks a server by a queue of messages: that stands at a checkpoint.
FAKEROOT = r'''
cat > in <<'EOF'
for i in $(seq 60); do
	touch f$i; chown $i:$((i + 1)) f$i; mknod n$i c 1 $i; stat -c '%n %u:%g %F' f$i n$i; sleep 0.02
done
tar cf - f? n? | tar tvf - | awk '{print $1,$2,$6}' | md5sum
EOF
fakeroot bash in
'''

# Random writes at a rate, each read and compared.
FIO = r'''
for e in psync pvsync2 mmap posixaio splice; do
fio --name=t --ioengine=$e --filename=data-$e --size=16m --bs=16k --rw=randrw --verify=crc32c --verify_fatal=1 --iodepth=4 --randseed=7 --rate_iops=1500 --output-format=terse --terse-version=3 2> /dev/null | cut -d\; -f3-6
md5sum data-$e | wc -c
done
fio --name=t --ioengine=psync --thread --numjobs=3 --size=4m --bs=4k --rw=randwrite --verify=md5 --randseed=3 --rate_iops=800 --filename_format=j.'$jobnum' --output-format=terse --terse-version=3 2> /dev/null | cut -d\; -f3-5
'''

GAP = r'''
cat > in.g <<'EOF'
for n in [5..11] do Print(n, " ", Size(SymmetricGroup(n)), " ", NrPartitions(n*9), "\n"); od;
for p in [2,3,5,7] do for k in [1..6] do Print(Size(GL(3,p^1)), " ", Length(Factors(p^(k*11)-1)), "\n"); od; od;
g := Group((1,2,3,4,5,6,7,8,9,10,11,12), (1,2)(3,7)); Print(Size(g), " ", Length(ConjugacyClassesSubgroups(SymmetricGroup(6))), "\n");
EOF
gap -q -b < in.g
'''

MAXIMA = r'''
cat > in <<'EOF'
for n:1 thru 40 do print(n, factor(2^(3*n+37)-1), float(integrate(x^n*exp(-x),x,0,1)))$
print(factor(expand((x+y+1)^12-1)))$
EOF
maxima --very-quiet < in
'''

BWRAP = r'''
bwrap --dev-bind / / bash -c 'for i in $(seq 20); do echo $i; sleep 0.1; done'
'''

SANITIZED = r'''
cat > p.cc <<'EOF'
#include <thread>
#include <vector>
#include <map>
#include <mutex>
#include <string>
#include <cstdio>
#include <atomic>
#include <unistd.h>
static thread_local long mine;
static std::mutex m; static std::map<long, std::string> all; static std::atomic<long> sum;
static void work(int n)
{
    for (int i = 0; i < 400; i++) {
        std::vector<char> v(1000 + i * 7, (char)i);
        { std::lock_guard<std::mutex> l(m); all[n * 1000 + i] = std::string(v.begin(), v.begin() + i % 50); if (i > 20) all.erase(n * 1000 + i - 20); }
        mine += v.size(); sum += v[i]; usleep(3000);
    }
    std::lock_guard<std::mutex> l(m); printf("%d %ld\n", n, mine);
}
int main() { setvbuf(stdout, 0, _IOLBF, 0); std::vector<std::thread> t; for (int i = 0; i < 4; i++) { t.emplace_back(work, i); if (i % 2) usleep(1000); } for (auto &x : t) x.join(); printf("%zu %ld\n", all.size(), (long)sum); }
EOF
'''

PROGRAMS = [
    Recipe('fakeroot', FAKEROOT, needs=['fakeroot']),
    Recipe('fio', FIO, needs=['fio']),
    Recipe('gap', GAP, needs=['gap']),
    Recipe('maxima', MAXIMA, needs=['maxima']),
    Recipe('bwrap', BWRAP, needs=['bwrap'], refused='has a namespace or a root directory of its own'),
    Recipe('sanitizers', 'ASAN_OPTIONS=verify_asan_link_order=0 ./asan | sort; ./static | sort; ./tsan | sort',
           needs=['g++'], prepare=SANITIZED + 'g++ -O1 -fsanitize=address p.cc -o asan; g++ -O1 -fsanitize=address -static-libasan p.cc -o static; g++ -O1 -fsanitize=thread p.cc -o tsan',
           refused='(AddressSanitizer or one of its kin|ThreadSanitizer) in it'),
]
