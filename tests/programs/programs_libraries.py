# SPDX-License-Identifier: BSD-2-Clause
"""Libraries of python3 that bring machinery of their own: event loops, threads, compilers, databases in memory that is shared."""
from recipe import Recipe

LMDB = r'''
import lmdb, multiprocessing, time, os
def work(n):
    env = lmdb.open('db', map_size=1 << 24, max_dbs=2)
    for i in range(60):
        with env.begin(write=True) as t:
            v = int(t.get(b'sum', b'0'))
            t.put(b'sum', str(v + n * i).encode()); t.put(b'%d-%d' % (n, i), b'x' * 100)
        time.sleep(0.005)
if __name__ == '__main__':
    ps = [multiprocessing.Process(target=work, args=(n,)) for n in range(1, 5)]
    for p in ps: p.start()
    for p in ps: p.join()
    env = lmdb.open('db')
    with env.begin() as t: print(t.get(b'sum').decode(), t.stat()['entries'])
'''

ZMQ = r'''
import zmq, threading, time, os, sys
c = zmq.Context(2)
def serve(url):
    s = c.socket(zmq.REP); s.bind(url)
    while True:
        m = s.recv()
        if m == b'end': s.send(b'ended'); return
        s.send(str(int(m) * 7).encode())
urls = ['inproc://a', 'ipc://%s/z' % os.environ['SOCKETS'], 'tcp://127.0.0.1:%s' % os.environ['PORT']]
ts = [threading.Thread(target=serve, args=(u,)) for u in urls]
for t in ts: t.start()
ss = []
for u in urls:
    s = c.socket(zmq.REQ); s.connect(u); ss.append(s)
total = 0
for i in range(300):
    for s in ss: s.send(str(i).encode())
    for s in ss: total += int(s.recv())
    time.sleep(0.005)
for s in ss: s.send(b'end'); print(s.recv())
for t in ts: t.join()
print(total)
c.destroy()
'''

GEVENT = r'''
from gevent import monkey; monkey.patch_all()
import gevent, gevent.server, gevent.pool, socket, subprocess, time
def handle(s, a):
    f = s.makefile('rwb')
    for l in f: f.write(b'%d\n' % (int(l) + 1)); f.flush()
srv = gevent.server.StreamServer(('127.0.0.1', 0), handle); srv.start()
def ask(n):
    s = socket.create_connection(srv.address); f = s.makefile('rwb'); t = 0
    for i in range(60):
        f.write(b'%d\n' % (n * i)); f.flush(); t += int(f.readline()); gevent.sleep(0.01)
    s.close(); return t
g = [gevent.spawn(ask, n) for n in range(20)]
print([subprocess.check_output(['echo', str(i)]).decode().strip() for i in range(20)])
gevent.joinall(g); print([x.value for x in g])
'''

GRPC = r'''
import grpc, time, os, threading
from concurrent import futures
class H(grpc.GenericRpcHandler):
    def service(self, d):
        if d.method == '/x/Twice': return grpc.unary_unary_rpc_method_handler(lambda r, c: str(2 * int(r)).encode())
        if d.method == '/x/Count': return grpc.unary_stream_rpc_method_handler(lambda r, c: (time.sleep(0.005) or b'%d' % i for i in range(int(r))))
s = grpc.server(futures.ThreadPoolExecutor(4)); s.add_generic_rpc_handlers((H(),)); port = s.add_insecure_port('127.0.0.1:0'); s.start()
ch = grpc.insecure_channel('127.0.0.1:%d' % port)
t = ch.unary_unary('/x/Twice'); k = ch.unary_stream('/x/Count')
for i in range(20): print([t(b'%d' % j) for j in range(i, i + 5)], sum(int(x) for x in k(b'20')), flush=True)
ch.close(); s.stop(0)
'''

NUMBA = r'''
import numba, numpy as np, time
@numba.njit(parallel=True)
def f(a):
    s = 0.0
    for i in numba.prange(a.size): s += int(a[i] * 1000) % 7
    return s
@numba.njit
def g(n):
    x = 1
    for i in range(n): x = (x * 1103515245 + 12345) % 2147483648
    return x
a = np.arange(200000) / 7.0
for i in range(60): print(i, f(a + i), g(100000 + i), flush=True); time.sleep(0.02)
'''

OPENCL = r'''
import pyopencl as cl, numpy as np, time
c = cl.Context([p.get_devices()[0] for p in cl.get_platforms()][:1]); q = cl.CommandQueue(c)
p = cl.Program(c, '__kernel void f(__global int *a, int k) { int i = get_global_id(0); for (int n = 0; n < 200; n++) a[i] = (a[i] * 31 + k) % 100003; }').build()
a = np.arange(20000, dtype=np.int32); b = cl.Buffer(c, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
for i in range(60):
    p.f(q, a.shape, None, b, np.int32(i)); cl.enqueue_copy(q, a, b); q.finish(); print(i, int(a.sum()), flush=True); time.sleep(0.02)
'''

H5PY = r'''
import h5py, numpy as np, time, hashlib
with h5py.File('x.h5', 'w') as f:
    d = f.create_dataset('d', (0, 1000), maxshape=(None, 1000), chunks=(10, 1000), compression='gzip')
    for i in range(120):
        d.resize(i + 1, axis=0); d[i] = np.arange(1000) * i % 97; f.attrs['n'] = i
        if i % 10 == 0: f.flush()
        time.sleep(0.01)
with h5py.File('x.h5') as f: print(f.attrs['n'], hashlib.md5(f['d'][...].tobytes()).hexdigest())
'''



def program(name, text, module, environment=''):
    return Recipe(name, f'{environment} /usr/bin/python3 -W ignore program'.strip(), needs=[f'/usr/lib/python3/dist-packages/{module}'], inputs={'program': text})


PROGRAMS = [
    program('lmdb', LMDB, 'lmdb'),
    program('zmq', ZMQ, 'zmq'),
    program('gevent', GEVENT, 'gevent'),
    program('grpc', GRPC, 'grpc'),
    program('numba', NUMBA, 'numba', 'NUMBA_CACHE_DIR=$PWD NUMBA_NUM_THREADS=3'),
    program('opencl', OPENCL, 'pyopencl', 'POCL_CACHE_DIR=$PWD/pocl'),
    program('h5py', H5PY, 'h5py'),
]
