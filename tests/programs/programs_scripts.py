# SPDX-License-Identifier: BSD-2-Clause
"""Programs in more languages of scripts and of systems: their threads, processes, pipes, timers and files."""
from recipe import Recipe

RUBY = '''\
$stdout.sync = true
require 'socket'
require 'timeout'
server = TCPServer.new('127.0.0.1', 0)
Thread.new { s = server.accept; while (l = s.gets) do s.puts l.to_i * 3 end }
client = TCPSocket.new('127.0.0.1', server.addr[1])
q = Queue.new
threads = 8.times.map { |n| Thread.new { 60.times { |i| sleep 0.01 * rand; q << n * i } } }
fiber = Fiber.new { a, b = 0, 1; loop { Fiber.yield a; a, b = b, a + b } }
usr1 = 0
trap('USR1') { usr1 += 1 }
30.times do |i|
  r, w = IO.pipe
  pid = fork { r.close; sleep 0.02; w.puts "child #{i}"; w.close; exit!(i) }
  w.close
  said = r.read.strip
  Process.wait pid
  client.puts i
  hit = begin
    Timeout.timeout(0.01) { sleep 5 }
  rescue Timeout::Error
    'late'
  end
  n = usr1
  Process.kill('USR1', Process.pid)
  sleep 0.001 while usr1 == n
  puts "#{said} #{$?.exitstatus} #{fiber.resume} #{client.gets.strip} #{hit} #{`echo #{i}`.strip}"
end
threads.each(&:join)
puts q.size, usr1
'''

PHP = '''\
<?php
function steps() { for ($i = 0; ; $i++) { $got = yield $i * 7 % 11; } }
$g = steps();
$log = fopen('log', 'w');
$sum = 0;
for ($i = 0; $i < 150; $i++) {
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $p = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
    fwrite($pipes[0], str_repeat("x$i", 1000));
    fclose($pipes[0]);
    $said = stream_get_contents($pipes[1]);
    $status = proc_close($p);
    fwrite($pair[0], "$i\\n");
    $sum = ($sum * 31 + strlen($said) + (int)fgets($pair[1]) + $g->current() + $status) % 1000003;
    $g->next();
    fprintf($log, "%d %d %s\\n", $i, $sum, md5($said));
    usleep(10000);
}
echo "$sum\\n";
'''

LUA = '''\
local ffi = require 'ffi'
ffi.cdef [[ int usleep(unsigned); typedef int (*cmp)(const void *, const void *); void qsort(void *, size_t, size_t, cmp); ]]
local log = io.open('log', 'w')
local sum = 0
local co = coroutine.wrap(function() local x = 1 while true do x = (x * 1103515245 + 12345) % 2147483648 coroutine.yield(x) end end)
for round = 1, 200 do
  local a = ffi.new('int[1000]')
  for i = 0, 999 do a[i] = co() % 100000 end
  ffi.C.qsort(a, 1000, 4, function(p, q) return ffi.cast('const int *', p)[0] - ffi.cast('const int *', q)[0] end)
  for i = 0, 999 do sum = (sum * 31 + a[i]) % 1000003 end
  for i = 1, 200000 do sum = (sum + i * round) % 1000003 end
  log:write(round, ' ', sum, '\\n')
  ffi.C.usleep(8000)
  if round % 60 == 0 then collectgarbage() end
end
log:close()
print(sum)
'''

CSHARP = '''\
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Threading;
using System.Threading.Tasks;

class Program {
    static async Task<long> Work(int n) {
        long sum = 0;
        for (int i = 0; i < 40; i++) {
            await Task.Delay(n * i % 20);
            var l = new List<string>();
            for (int k = 0; k < 500; k++) l.Add((k * n).ToString());
            sum += string.Join("", l).Length;
        }
        return sum;
    }
    static void Main() {
        int ticks = 0;
        using (var timer = new Timer(_ => Interlocked.Increment(ref ticks), null, 10, 10))
        using (var log = new StreamWriter("log")) {
            var tasks = new List<Task<long>>();
            for (int n = 1; n <= 12; n++) { int k = n; tasks.Add(Task.Run(() => Work(k))); }
            for (int i = 0; i < 25; i++) {
                var p = Process.Start(new ProcessStartInfo("echo", "from " + i) { RedirectStandardOutput = true, UseShellExecute = false });
                var said = p.StandardOutput.ReadToEnd().Trim();
                p.WaitForExit();
                log.WriteLine(said + " " + p.ExitCode);
                GC.Collect();
                Thread.Sleep(30);
                try { throw new InvalidOperationException("" + i); } catch (Exception e) { Console.WriteLine(e.Message); }
                try { string s = null; Console.WriteLine(s.Length); } catch (NullReferenceException) { }
            }
            Task.WaitAll(tasks.ToArray());
            long sum = 0;
            foreach (var t in tasks) sum += t.Result;
            Console.WriteLine(sum + " " + (ticks > 5));
        }
    }
}
'''

RUST = '''\
use std::io::Write;
use std::process::Command;
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let (tx, rx) = mpsc::channel();
    let barrier = Arc::new(Barrier::new(6));
    let shared = Arc::new(Mutex::new(0u64));
    let threads: Vec<_> = (1..=6u64).map(|n| {
        let (tx, barrier, shared) = (tx.clone(), barrier.clone(), shared.clone());
        thread::spawn(move || for i in 0..80u64 {
            thread::sleep(Duration::from_millis(n * i % 12));
            let v: Vec<u64> = (0..1000).map(|k| k * n * i % 97).collect();
            *shared.lock().unwrap() += v.iter().sum::<u64>();
            barrier.wait();
            tx.send(n * i).unwrap();
        })
    }).collect();
    let mut log = std::fs::File::create("log").unwrap();
    for i in 0..30 {
        let out = Command::new("sh").arg("-c").arg(format!("echo {}; exit {}", i, i)).output().unwrap();
        writeln!(log, "{} {:?}", String::from_utf8_lossy(&out.stdout).trim(), out.status.code()).unwrap();
        let begin = Instant::now();
        let late = rx.recv_timeout(Duration::from_millis(0)).is_err() || begin.elapsed() < Duration::from_secs(1000);
        println!("{} {}", i, late);
        thread::sleep(Duration::from_millis(20));
    }
    for t in threads { t.join().unwrap(); }
    println!("{}", shared.lock().unwrap());
}
'''

OCTAVE = '''\
s = 0;
for i = 1:60
  a = magic(60) * i;
  s = mod(s + sum(abs(real(eig(a)))) + trace(inv(a + eye(60))), 1e9);
  [st, out] = system(sprintf("echo %d", i));
  printf("%d %s", st, out);
  pause(0.02);
end
printf("%.3e\\n", floor(s));
'''

R = '''\
library(parallel)
set.seed(3)
for (i in 1:12) {
  r <- mclapply(1:4, function(k) { Sys.sleep(0.03); k * i }, mc.cores = 3)
  m <- matrix(1:2500 %% 17 + diag(50), 50)
  cat(unlist(r), sum(round(solve(m + 20 * diag(50)), 6)), round(runif(1), 6), system(paste("echo", i), intern = TRUE), "\\n")
}
cl <- makeCluster(2)
cat(unlist(clusterApply(cl, 1:10, function(x) { Sys.sleep(0.05); x^2 })), "\\n")
stopCluster(cl)
'''

PROGRAMS = [
    Recipe('ruby', 'ruby main.rb', needs=['ruby'], inputs={'main.rb': RUBY}),
    Recipe('php', 'php main.php', needs=['php'], files=['log'], inputs={'main.php': PHP}),
    Recipe('luajit', 'luajit main.lua', needs=['luajit'], files=['log'], inputs={'main.lua': LUA}),
    Recipe('mono', 'mono main.exe', needs=['mono', 'mcs'], files=['log'], inputs={'main.cs': CSHARP}, prepare='mcs main.cs'),
    Recipe('rust', './main', needs=['/usr/bin/rustc'], files=['log'], inputs={'main.rs': RUST}, prepare='/usr/bin/rustc -O main.rs'),
    Recipe('octave', 'octave-cli -q main.m', needs=['octave-cli'], inputs={'main.m': OCTAVE}),
    Recipe('r', 'Rscript main.R', needs=['Rscript'], inputs={'main.R': R}),
]
