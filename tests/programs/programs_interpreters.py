# SPDX-License-Identifier: BSD-2-Clause
"""Languages with a run-time system of their own: python3, perl, node, a JVM."""
from recipe import Recipe

PYTHON_THREADS = r'''
import queue, threading, hashlib
tasks, results = queue.Queue(20), queue.Queue()
def work():
    while (item := tasks.get()) is not None:
        results.put((item, hashlib.sha256(b'%d' % item * 2000).hexdigest()))
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for i in range(60000): tasks.put(i)
for t in threads: tasks.put(None)
for t in threads: t.join()
every = sorted(results.get() for _ in range(60000))
print(len(every), hashlib.sha256(repr(every).encode()).hexdigest())
condition, turn, said = threading.Condition(), [0], []
def ring(n):
    for _ in range(3000):
        with condition:
            condition.wait_for(lambda: turn[0] % 4 == n, timeout=60)
            said.append(n)
            turn[0] += 1
            condition.notify_all()
threads = [threading.Thread(target=ring, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(said == [0, 1, 2, 3] * 3000)
'''

PYTHON_PROCESSES = r'''
import multiprocessing as mp
from multiprocessing import shared_memory
def power(x):
    return sum(i * x for i in range(2000)) % 1000003
def add(lock, name, value, n):
    memory = shared_memory.SharedMemory(name=name)
    for i in range(1000):
        with lock:
            memory.buf[n] = (memory.buf[n] + 1) % 256
            value.value += 1
    memory.close()
def main():
    with mp.Pool(4) as pool:
        print(sum(pool.imap(power, range(20000), chunksize=20)))
    memory, lock, value = shared_memory.SharedMemory(create=True, size=4096), mp.Lock(), mp.Value('i', 0)
    workers = [mp.Process(target=add, args=(lock, memory.name, value, n)) for n in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
    print(value.value, list(memory.buf[:4]), [w.exitcode for w in workers])
    memory.close(); memory.unlink()
    with mp.Manager() as manager:
        d = manager.dict()
        ws = [mp.Process(target=lambda d, n: [d.__setitem__((n, i), i) for i in range(300)], args=(d, n)) for n in range(3)]
        for w in ws: w.start()
        for w in ws: w.join()
        print(len(d), sum(d.values()))
    here, there = mp.Pipe()
    w = mp.Process(target=lambda: [there.send(here_value * 2) for here_value in iter(there.recv, None)] and None)
    w.start()
    answers = []
    for i in range(3000):
        here.send(i); answers.append(here.recv())
    here.send(None); w.join()
    print(sum(answers))
mp.set_start_method('fork')
main()
'''

# Workers that are begun anew open locks by their names.
PYTHON_SPAWN = r'''
import multiprocessing as mp
def add(lock, queue, n):
    for i in range(200):
        with lock:
            queue.put((n, i))
def main():
    mp.set_start_method('spawn')
    lock, queue = mp.Lock(), mp.Queue()
    total = 0
    for turn in range(8):
        workers = [mp.Process(target=add, args=(lock, queue, n)) for n in range(3)]
        for w in workers: w.start()
        total += sum(n * i for n, i in (queue.get() for _ in range(600)))
        for w in workers: w.join()
        print(turn, total, [w.exitcode for w in workers], flush=True)
if __name__ == '__main__':
    main()
'''

PYTHON_ASYNCIO = r'''
import asyncio, os, sys
async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(b'%d\n' % (int(line) * 3))
        await writer.drain()
    writer.close()
async def client(n):
    reader, writer = await asyncio.open_connection('127.0.0.1', int(os.environ['PORT']))
    total = 0
    for i in range(2000):
        writer.write(b'%d\n' % (i + n))
        total += int(await reader.readline())
        if i % 500 == 0:
            await asyncio.sleep(0.01)
    writer.close()
    return total
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', int(os.environ['PORT']))
    print(await asyncio.gather(*(client(n) for n in range(8))))
    async def child(n):
        p = await asyncio.create_subprocess_exec(sys.executable, '-c', f'print(sum(range({n}00000)))', stdout=asyncio.subprocess.PIPE)
        return (await p.communicate())[0]
    for base in range(0, 12, 4):
        print(await asyncio.gather(*(child(n) for n in range(base, base + 4))))
    print((await asyncio.gather(*(asyncio.to_thread(sum, range(n * 1000)) for n in range(200))))[-1])
    server.close()
asyncio.run(main())
'''

PYTHON_NUMPY = r'''
import numpy, zlib
random = numpy.random.default_rng(7)
a = random.random((300, 300))
for i in range(60):
    a = a @ a.T
    a /= numpy.abs(a).max()
    u, s, v = numpy.linalg.svd(a[:120, :120])
    a[:120, :120] += numpy.outer(u[:, 0], v[0]) * s[0]
print(zlib.crc32(numpy.round(a, 6).tobytes()), '%.6f' % s.sum())
m = numpy.memmap('mapped', dtype='f8', mode='w+', shape=(1000, 500))
for i in range(1000):
    m[i] = random.random(500) + i
m.flush()
print('%.9f' % m.sum())
'''

PYTHON_FILES = r'''
log = open('log', 'w')
data = open('data', 'w+b')
for i in range(1500000):
    print('line', i, file=log)
    data.seek(i % 97 * 512)
    data.write(b'%08d' % i * 64)
log.close(); data.close()
print('end')
'''

PERL = r'''
use strict; use warnings; use IO::Socket::INET; use POSIX ":sys_wait_h"; $| = 1;
my %count;
for my $i (1 .. 400000) { my $k = ($i * 7919) % 1009; $count{"key$k"}++ if "text$i" =~ /^text(\d+)[13579]$/; }
print join(",", map { "$_=$count{$_}" } (sort keys %count)[0 .. 9]), "\n";
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ENV{PORT}, Listen => 5, ReuseAddr => 1) or die "listen: $!";
my @pids;
for my $n (1 .. 4) {
    my $pid = fork() // die;
    if (!$pid) {
        my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ENV{PORT}) or die "connect: $!";
        for my $i (1 .. 2000) { print $s "$n $i\n"; my $answer = <$s>; $answer == $n * $i or die "got $answer"; }
        exit $n;
    }
    push @pids, $pid;
}
for my $n (1 .. 4) {
    my $c = $server->accept or die;
    while (my $line = <$c>) { my ($x, $y) = split " ", $line; print $c $x * $y, "\n"; }
}
print "statuses ", join(" ", map { waitpid($_, 0); $? >> 8 } @pids), "\n";
local $SIG{ALRM} = sub { print "alarm\n" };
alarm 1; select undef, undef, undef, 5;
for my $i (1 .. 60) { my $out = `echo $i; exit 3`; chomp $out; print "$out/", $? >> 8, " "; }
print "\n";
'''

NODE = r'''
const http = require('http'), fs = require('fs'), crypto = require('crypto'), zlib = require('zlib');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads'), { execFile } = require('child_process');
const digest = text => crypto.createHash('sha256').update(text).digest('hex');
if (!isMainThread) {
    let sum = 0;
    for (let i = 0; i < 4e6; i++) sum = (sum * 31 + i * workerData) % 1000003;
    parentPort.postMessage(sum);
} else (async () => {
    const work = n => new Promise((ok, no) => new Worker(__filename, { workerData: n }).on('message', ok).on('error', no));
    for (let round = 0; round < 3; round++) console.log(await Promise.all([1, 2, 3, 4].map(work)));
    const server = http.createServer((request, response) => {
        let text = '';
        request.on('data', d => text += d).on('end', () => response.end(digest(text)));
    });
    await new Promise(ok => server.listen(+process.env.PORT, '127.0.0.1', ok));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 5 });
    const post = n => new Promise((ok, no) => {
        const r = http.request({ port: process.env.PORT, host: '127.0.0.1', method: 'POST', agent }, a => {
            let text = '';
            a.on('data', d => text += d).on('end', () => ok(text === digest('body ' + n)));
        });
        r.on('error', no);
        r.end('body ' + n);
    });
    let right = 0;
    for (let i = 0; i < 150; i++) right += (await Promise.all([...Array(10).keys()].map(n => post(i * 10 + n)))).filter(x => x).length;
    console.log('right', right);
    server.close(); agent.destroy();
    for (let i = 0; i < 100; i++) await fs.promises.appendFile('log', `line ${i} ${digest('x' + i)}\n`);
    const packed = await new Promise((ok, no) => zlib.gzip(Buffer.alloc(8e6, 'abcdefg'), (e, b) => e ? no(e) : ok(b)));
    console.log(zlib.gunzipSync(packed).length);
    for (let i = 0; i < 10; i++) console.log(await new Promise(ok => execFile('expr', [`${i}`, '+', '1'], (e, out) => ok(out.trim()))));
    await new Promise(ok => setTimeout(ok, 200));
    console.log('end');
})();
'''

JAVA = r'''
import java.io.*; import java.net.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*;
public class Main {
    static long work(int n) {
        Map<Integer, String> map = new HashMap<>();
        long sum = 0;
        for (int i = 0; i < 20000; i++) { map.put(i * n % 5003, "value " + i); sum += map.get(i * n % 5003).length(); }
        return sum;
    }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> all = new ArrayList<>();
        for (int i = 1; i <= 800; i++) { final int n = i; all.add(pool.submit(() -> work(n))); }
        long total = 0;
        for (Future<Long> f : all) total += f.get();
        System.out.println("total " + total);
        ServerSocket server = new ServerSocket(Integer.parseInt(System.getenv("PORT")), 10, InetAddress.getLoopbackAddress());
        pool.submit(() -> { try (Socket s = server.accept()) {
            BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream())); PrintWriter out = new PrintWriter(s.getOutputStream(), true);
            for (String line; (line = in.readLine()) != null; ) out.println(Integer.parseInt(line) * 2);
        } return null; });
        long answers = 0;
        try (Socket s = new Socket(InetAddress.getLoopbackAddress(), server.getLocalPort())) {
            BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream())); PrintWriter out = new PrintWriter(s.getOutputStream(), true);
            for (int i = 0; i < 5000; i++) { out.println(i); answers += Integer.parseInt(in.readLine()); }
        }
        System.out.println("answers " + answers);
        try (BufferedWriter w = Files.newBufferedWriter(Path.of("log"))) { for (int i = 0; i < 100000; i++) w.write("line " + i + "\n"); }
        List<byte[]> garbage = new ArrayList<>();
        for (int i = 0; i < 20000; i++) { garbage.add(new byte[5000]); if (garbage.size() > 500) garbage.clear(); }
        AtomicLong counter = new AtomicLong();
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(1);
        CountDownLatch twenty = new CountDownLatch(20);
        timer.scheduleAtFixedRate(() -> { counter.incrementAndGet(); twenty.countDown(); }, 0, 10, TimeUnit.MILLISECONDS);
        twenty.await(); timer.shutdown();
        Process p = new ProcessBuilder("expr", "6", "*", "7").start();
        System.out.println(new String(p.getInputStream().readAllBytes()).trim() + " " + p.waitFor());
        pool.shutdown();
        System.out.println("end " + pool.awaitTermination(20, TimeUnit.SECONDS));
    }
}
'''

# It knows its children by their numbers and the times at which they were begun, and ends none that it does not know.
JAVA_PROCESSES = r'''
import java.util.*;
import java.util.concurrent.*;

public class Main {
    public static void main(String[] args) throws Exception {
        Deque<Process> waiting = new ArrayDeque<>();
        Set<ProcessHandle> begun = new HashSet<>();
        for (int round = 0; round < 40; round++) {
            Process p = new ProcessBuilder("sleep", "1000").start();
            waiting.add(p);
            begun.add(p.toHandle());
            Thread.sleep(50);
            if (waiting.size() < 10)
                continue;
            Process old = waiting.remove();
            boolean known = old.toHandle().isAlive() && ProcessHandle.of(old.pid()).get().equals(old.toHandle()) && begun.contains(old.toHandle());
            if (round % 2 == 0) old.destroy(); else old.destroyForcibly();
            if (!old.waitFor(60, TimeUnit.SECONDS)) Runtime.getRuntime().halt(1);
            System.out.println(round + " " + known + " " + old.exitValue() + " " + ProcessHandle.current().children().count());
        }
        for (Process p : waiting) p.destroy();
        for (Process p : waiting) p.waitFor();
    }
}
'''

PROGRAMS = [
    Recipe('java-processes', 'java -Xmx200m Main', needs=['java', 'javac'], inputs={'Main.java': JAVA_PROCESSES}, prepare='javac Main.java'),
    Recipe('python-threads', '/usr/bin/python3 program', inputs={'program': PYTHON_THREADS}),
    Recipe('python-processes', '/usr/bin/python3 program', inputs={'program': PYTHON_PROCESSES}),
    Recipe('python-spawn', '/usr/bin/python3 program', inputs={'program': PYTHON_SPAWN}),
    Recipe('python-asyncio', '/usr/bin/python3 program', inputs={'program': PYTHON_ASYNCIO}),
    Recipe('python-numpy', '/usr/bin/python3 program', needs=['/usr/lib/python3/dist-packages/numpy'], files=['mapped'], inputs={'program': PYTHON_NUMPY}),
    Recipe('python-files', '/usr/bin/python3 program', files=['log', 'data'], inputs={'program': PYTHON_FILES}),
    Recipe('perl', 'perl program', needs=['perl'], inputs={'program': PERL}),
    Recipe('node', 'node program.js', needs=['node'], files=['log'], inputs={'program.js': NODE}),
    Recipe('java', 'java -Xmx200m Main', needs=['java', 'javac'], files=['log'], inputs={'Main.java': JAVA}, prepare='javac Main.java'),
    # Its heap is a memfd of which each part is mapped three times, and some by nobody.
    Recipe('java-zgc', 'java -Xmx200m -XX:+UseZGC Main', needs=['java', 'javac'], files=['log'], inputs={'Main.java': JAVA}, prepare='javac Main.java'),
]
