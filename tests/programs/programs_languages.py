# SPDX-License-Identifier: BSD-2-Clause
"""Programs in functional, logical and other languages, whose runtime systems make threads, signals, timers and memory of their own."""
from recipe import Recipe

ERLANG = '''\
-module(main).
-export([main/0]).

worker(Parent, N) ->
    receive {go, K} -> timer:sleep(K rem 7), Parent ! {done, N, K * N rem 1009}, worker(Parent, N) end.

rounds(0, _, _, Sum) -> Sum;
rounds(R, Workers, File, Sum) ->
    [W ! {go, R} || W <- Workers],
    S = lists:sum([receive {done, _, V} -> V end || _ <- Workers]),
    ets:insert(table, {R, S}),
    Said = case R rem 40 of 0 -> string:trim(os:cmd("echo from " ++ integer_to_list(R))); _ -> "" end,
    io:format(File, "~b ~b ~s~n", [R, S, Said]),
    rounds(R - 1, Workers, File, Sum + S).

main() ->
    ets:new(table, [named_table]),
    Self = self(),
    {ok, File} = file:open("log", [write]),
    {ok, L} = gen_tcp:listen(0, [{active, false}, {packet, 2}]),
    {ok, Port} = inet:port(L),
    spawn(fun() -> {ok, S} = gen_tcp:accept(L), (fun F() -> case gen_tcp:recv(S, 0) of {ok, D} -> ok = gen_tcp:send(S, D), F(); _ -> ok end end)() end),
    {ok, C} = gen_tcp:connect("localhost", Port, [{active, false}, {packet, 2}]),
    Workers = [spawn(fun() -> worker(Self, N) end) || N <- lists:seq(1, 50)],
    Sum = rounds(400, Workers, File, 0),
    ok = gen_tcp:send(C, <<"there">>),
    {ok, Back} = gen_tcp:recv(C, 0),
    file:close(File),
    io:format("~b ~b ~s~n", [Sum, ets:info(table, size), Back]),
    halt().
'''

GO_LIBRARY = '''\
package main

import "C"
import (
	"sync"
	"time"
)

func deep(n int, a [16]int) int {
	if n == 0 {
		return a[3]
	}
	a[n%16] += n
	return deep(n-1, a) + a[(n+1)%16]%3
}

func work(k int) int {
	sum := deep(k%9, [16]int{})
	for i := 0; i < 400000; i++ {
		sum = sum*31 + i%7 + k
	}
	return sum
}

//export Rounds
func Rounds(n C.int) C.long {
	sum := 0
	for r := 0; r < int(n); r++ {
		var all sync.WaitGroup
		out := make([]int, 32)
		for g := range out {
			all.Add(1)
			go func(g int) { defer all.Done(); out[g] = work(g + r) }(g)
		}
		all.Wait()
		for _, v := range out {
			sum = sum*17 + v
		}
		time.Sleep(2 * time.Millisecond)
	}
	return C.long(sum)
}

func main() {}
'''

GO_LIBRARY_USER = '''\
#include <stdio.h>
#include "work.h"

int main(void)
{
	for (int i = 0; i < 5; i++)
		printf("%ld\\n", Rounds(30));
	return 0;
}
'''

GO = '''\
package main

import "C"
import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

func serve(l net.Listener) {
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "back %s", r.URL.Path) }))
}

func work(n int, in <-chan int, out chan<- int) {
	for k := range in {
		m := map[int]int{}
		for i := 0; i < 20000; i++ {
			m[i*n%101] += k
		}
		time.Sleep(time.Duration(k%5) * time.Millisecond)
		out <- len(m) * k % 1009
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go serve(l)
	in, out := make(chan int), make(chan int, 64)
	var all sync.WaitGroup
	for n := 1; n <= 20; n++ {
		all.Add(1)
		go func(n int) { defer all.Done(); work(n, in, out) }(n)
	}
	ticks := time.NewTicker(40 * time.Millisecond)
	file, _ := os.Create("log")
	sum := 0
	for r := 0; r < 60; r++ {
		<-ticks.C
		for k := 0; k < 20; k++ {
			in <- r + k
		}
		for k := 0; k < 20; k++ {
			sum += <-out % 7
		}
		if r%10 == 0 {
			runtime.GC()
			said, err := exec.Command("echo", "from", fmt.Sprint(r)).Output()
			answer, err2 := http.Get(fmt.Sprintf("http://%s/%d", l.Addr(), r))
			if err != nil || err2 != nil {
				panic(fmt.Sprint(err, err2))
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			fmt.Fprintf(file, "%d %s %s", r, body, said)
		}
	}
	close(in)
	all.Wait()
	before := time.Now()
	select {
	case <-time.After(300 * time.Millisecond):
	}
	if time.Since(before) < 300*time.Millisecond {
		panic("too early")
	}
	fmt.Println(sum)
}
'''

LISP = '''\
(defvar *lock* (sb-thread:make-mutex))
(defvar *sum* 0)
(defun work (n)
  (loop for i below 150
        do (let ((l (loop for k below 3000 collect (* k n))))
             (sb-thread:with-mutex (*lock*) (setf *sum* (mod (+ *sum* (reduce #'+ l) i) 1000003)))
             (sleep 0.003))))
(let ((threads (loop for n from 1 to 6 collect (let ((n n)) (sb-thread:make-thread (lambda () (work n)))))))
  (loop for i below 40
        do (sb-ext:gc :full (zerop (mod i 10)))
           (handler-case (sb-ext:with-timeout 0.02 (loop (sleep 1))) (sb-ext:timeout () (format t "time ~d~%" i))))
  (mapc #'sb-thread:join-thread threads)
  (format t "~d~%" *sum*)
  (format t "~a" (with-output-to-string (s) (sb-ext:run-program "/bin/echo" '("from" "outside") :output s))))
'''

HASKELL = '''\
import Control.Concurrent
import Control.Monad
import Data.IORef
import System.IO
import System.Process
import System.Timeout

main :: IO ()
main = do
  hSetBuffering stdout LineBuffering
  results <- newEmptyMVar
  forM_ [1 .. 100 :: Int] $ \\n -> forkIO $ forM_ [1 .. 60 :: Int] $ \\i -> do
    threadDelay (n * 37 `mod` 50 * 1000)
    putMVar results $! sum [n * k `mod` 97 | k <- [1 .. i * 10]]
  sums <- replicateM 6000 (takeMVar results)
  print (sum sums)
  forM_ [1 .. 10 :: Int] $ \\i -> do
    r <- timeout 20000 (threadDelay 10000000)
    said <- readProcess "cat" [] (show i)
    putStrLn (show r ++ " " ++ said)
'''

OCAML = '''\
let lock = Mutex.create () and full = Condition.create ()
let queue = Queue.create ()
let worker n = for i = 1 to 60 do
    Thread.delay (float_of_int (n * i mod 7) *. 0.004);
    Mutex.lock lock; Queue.add (n * i) queue; Condition.signal full; Mutex.unlock lock done
let () =
  let threads = List.init 8 (fun n -> Thread.create worker (n + 1)) in
  let ticks = ref 0 in
  Sys.set_signal Sys.sigvtalrm (Sys.Signal_handle (fun _ -> ()));
  Sys.set_signal Sys.sigalrm (Sys.Signal_handle (fun _ -> incr ticks));
  ignore (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.02; it_value = 0.02 });
  let sum = ref 0 in
  for _ = 1 to 480 do
    Mutex.lock lock;
    while Queue.is_empty queue do Condition.wait full lock done;
    sum := !sum + Queue.take queue; Mutex.unlock lock
  done;
  ignore (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.; it_value = 0. });
  List.iter Thread.join threads;
  for i = 1 to 40 do
    let r, w = Unix.pipe () in
    match Unix.fork () with
    | 0 -> Unix.sleepf 0.02; ignore (Unix.write_substring w (string_of_int i) 0 (String.length (string_of_int i))); Unix._exit i
    | pid ->
      Unix.close w;
      let b = Bytes.create 10 in
      let rec get () = try Unix.read r b 0 10 with Unix.Unix_error (Unix.EINTR, _, _) -> get () in
      let n = get () in
      Unix.close r;
      (match snd (Unix.waitpid [] pid) with Unix.WEXITED s -> Printf.printf "%s %d\\n%!" (Bytes.sub_string b 0 n) s | _ -> print_endline "?")
  done;
  Printf.printf "%d %b\\n" !sum (!ticks > 5)
'''

GUILE = '''\
(use-modules (ice-9 threads) (ice-9 popen) (ice-9 rdelim) (srfi srfi-1))
(define m (make-mutex))
(define sum 0)
(define (work n)
  (do ((i 0 (+ i 1))) ((= i 80))
    (usleep (* 1000 (modulo (* n i) 9)))
    (let ((s (fold + 0 (map (lambda (k) (modulo (* k n i) 97)) (iota 400)))))
      (with-mutex m (set! sum (+ sum s))))))
(define threads (map (lambda (n) (call-with-new-thread (lambda () (work n)))) (iota 6 1)))
(do ((i 0 (+ i 1))) ((= i 40))
  (let* ((p (open-pipe* OPEN_READ "echo" (number->string i))) (l (read-line p)))
    (close-pipe p)
    (usleep 20000)
    (format #t "~a ~a\\n" l (call/cc (lambda (k) (k (* i i)))))))
(for-each join-thread threads)
(format #t "~a\\n" sum)
'''

PROLOG = '''\
work(N, Q) :- forall(between(1, 80, I), (T is (N * I mod 9) / 1000, sleep(T), numlist(1, 500, L), sum_list(L, S), X is (S * N * I) mod 1009, thread_send_message(Q, X))).
late(I) :- catch(call_with_time_limit(0.02, sleep(10)), E, true), writeln(I-E).
main :- message_queue_create(Q),
    findall(T, (between(1, 6, N), thread_create(work(N, Q), T)), Ts),
    findall(X, (between(1, 480, _), thread_get_message(Q, X)), Xs),
    maplist(thread_join, Ts), sum_list(Xs, S), writeln(S),
    forall(between(1, 20, I), late(I)),
    halt.
:- initialization(main, main).
'''

EMACS = '''\
(let ((sum 0) (ticks 0) (log nil))
  (run-at-time 0.01 0.01 (lambda () (setq ticks (1+ ticks))))
  (dotimes (i 25)
    (let ((p (start-process "cat" nil "cat")) (said ""))
      (set-process-filter p (lambda (_ s) (setq said (concat said s))))
      (process-send-string p (format "line %d\\n" i))
      (while (< (length said) 7) (accept-process-output p 0.02))
      (delete-process p)
      (push (car (split-string said "\\r?\\n")) log)
      (sit-for 0.03)))
  (princ (format "%S %s\\n" (nreverse log) (> ticks 5))))
'''

ADA = '''\
with Ada.Text_IO; use Ada.Text_IO;
procedure Main is
   protected Box is
      procedure Put (X : Integer);
      entry Get (X : out Integer);
   private
      Sum : Integer := 0; Count : Integer := 0;
   end Box;
   protected body Box is
      procedure Put (X : Integer) is begin Sum := (Sum + X) mod 1_000_003; Count := Count + 1; end Put;
      entry Get (X : out Integer) when Count = 6 * 80 is begin X := Sum; end Get;
   end Box;
   task type Worker (N : Integer);
   task body Worker is
   begin
      for I in 1 .. 80 loop
         delay Duration (N * I mod 9) * 0.003;
         Box.Put (N * I);
      end loop;
   end Worker;
   A : Worker (1); B : Worker (2); C : Worker (3); D : Worker (4); E : Worker (5); F : Worker (6);
   X : Integer;
begin
   for I in 1 .. 40 loop
      select
         delay 0.03;
         Put_Line ("late" & I'Image);
      then abort
         loop delay 0.0001; end loop;
      end select;
   end loop;
   Box.Get (X);
   Put_Line (X'Image);
end Main;
'''

PROGRAMS = [
    Recipe('erlang', 'erl -noinput -s main main', needs=['erl', 'erlc'], files=['log'], inputs={'main.erl': ERLANG}, prepare='erlc main.erl'),
    Recipe('go', './main', needs=['go'], files=['log'], inputs={'main.go': GO}, prepare='GO111MODULE=off go build -o main main.go'),
    Recipe('go-library', './main', needs=['go', 'gcc'], inputs={'main.go': GO_LIBRARY, 'main.c': GO_LIBRARY_USER}, prepare='GO111MODULE=off go build -buildmode=c-shared -o work.so main.go && gcc -o main main.c ./work.so'),
    Recipe('sbcl', 'sbcl --script main.lisp', needs=['sbcl'], inputs={'main.lisp': LISP}),
    Recipe('haskell', './main +RTS -N2', needs=['ghc'], inputs={'main.hs': HASKELL}, prepare='ghc -threaded -rtsopts -package process -O main.hs -o main'),
    Recipe('ocaml', './main', needs=['ocamlopt'], inputs={'main.ml': OCAML}, prepare='ocamlopt -I +threads unix.cmxa threads.cmxa main.ml -o main'),
    Recipe('guile', 'guile main.scm', needs=['guile'], inputs={'main.scm': GUILE}),
    Recipe('prolog', 'swipl -q main.pl', needs=['swipl'], inputs={'main.pl': PROLOG}),
    Recipe('emacs', 'emacs -Q --batch -l main.el', needs=['emacs'], inputs={'main.el': EMACS}),
    Recipe('ada', './main', needs=['gnatmake'], inputs={'main.adb': ADA}, prepare='gnatmake main.adb'),
]
