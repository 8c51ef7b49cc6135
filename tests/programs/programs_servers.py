# SPDX-License-Identifier: BSD-2-Clause
"""Servers with their clients, in one job: databases, a web server under load, sshd and ssh. All of them listen on loopback only."""
from recipe import Recipe

SQL = ''.join(f"INSERT INTO t(v) VALUES('value {i}');\nUPDATE t SET v = v || 'x' WHERE i = {i // 2};\n" for i in range(2000)) + \
    'SELECT count(*), sum(i), sum(length(v)) FROM t;\n'
SQLITE = 'CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT);\n' + SQL + 'PRAGMA integrity_check;\n'

# A client's answers, and what the server holds at the end, which it keeps in an append-only file, too.
REDIS = r'''
redis-server --port 0 --unixsocket "$SOCKETS/r" --bind 127.0.0.1 --port "$PORT" --save '' --appendonly yes --appendfsync no > server.log &
client() { redis-cli -p "$PORT" "$@"; }
until [ "$(client ping 2>/dev/null)" = PONG ] || [ $SECONDS -gt 20 ]; do sleep 0.05; done
for n in 1 2 3; do
    for ((i = 0; i < 6000; i++)); do echo "incr counter-$n"; echo "rpush list-$n $i"; echo "set key-$n-$i value"; echo "get key-$n-$((i / 2))"; done |
        redis-cli -s "$SOCKETS/r" > "answers-$n" &
done
wait %2 %3 %4
cat answers-? | cksum
client dbsize; client llen list-2; client get counter-3; client lrange list-1 5990 5999
client bgrewriteaof > /dev/null
while client info persistence | grep -q 'aof_rewrite_in_progress:1'; do sleep 0.05; done
client eval 'local s = 0; for i = 1, 3000000 do s = (s + i * 7) % 1000003 end; return s' 0
client shutdown nosave
wait %1
echo "status $?"
'''

POSTGRES = r'''
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
"$bin/postgres" -D data -k "$SOCKETS" -h '' -F 2> server.log &
query() { psql -h "$SOCKETS" -d postgres -qAt "$@"; }
until query -c 'select 1' > /dev/null 2>&1 || [ $SECONDS -gt 20 ]; do sleep 0.05; done
query -c 'create table t(i serial primary key, v text); create table u(i int primary key, n int); insert into u select g, 0 from generate_series(1, 50) g'
query < input.sql &
for n in 1 2 3; do
    for ((i = 0; i < 400; i++)); do echo "update u set n = n + 1 where i = $((i * n % 50 + 1));"; done | query &
done
wait %2 %3 %4 %5
query -c 'select sum(n), count(*) from u' -c 'select count(*), sum(i), sum(length(v)) from t' -c 'vacuum analyze' -c 'reindex table t' -c 'select count(*) from t where i > 100'
kill -INT %1
wait %1
echo "status $?"
'''

NGINX_CONF = r'''
daemon on; master_process on; worker_processes 2; error_log error.log; pid nginx.pid;
events { worker_connections 256; }
http {
    access_log off; client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    server { listen 127.0.0.1:PORT; root www; sendfile on; location / { } location /stub { return 200 "answer\n"; } }
}
'''

NGINX = r'''
sed -i "s/PORT/$PORT/" nginx.conf
/usr/sbin/nginx -p "$PWD/" -c nginx.conf 2> start.log
wrk -t 2 -c 20 -d 3s "http://127.0.0.1:$PORT/file" > wrk.out
echo "wrk: status $?"
grep -E 'Socket errors|Non-2xx' wrk.out
grep -q '^Requests/sec' wrk.out && echo requests
/usr/bin/python3 - <<'END'
import os, urllib.request, hashlib
port, all = os.environ['PORT'], hashlib.sha256()
for i in range(300):
    for name in 'file', 'stub', 'large':
        all.update(urllib.request.urlopen(f'http://127.0.0.1:{port}/{name}').read())
print(all.hexdigest())
END
/usr/sbin/nginx -p "$PWD/" -c nginx.conf -s reload 2>> start.log
/usr/sbin/nginx -p "$PWD/" -c nginx.conf -s quit 2>> start.log
while [ -e nginx.pid ] && [ $SECONDS -lt 60 ]; do sleep 0.05; done
grep -E 'alert|crit|emerg' error.log
echo end
'''

SSH = r'''
cat > sshd_config <<END
Port $PORT
ListenAddress 127.0.0.1
HostKey $PWD/host
AuthorizedKeysFile $PWD/user.pub
StrictModes no
UsePAM no
PidFile none
END
/usr/sbin/sshd -D -f "$PWD/sshd_config" -E "$PWD/sshd.log" &
go() { ssh -F none -p "$PORT" -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR 127.0.0.1 "$@"; }
until go true 2> /dev/null || [ $SECONDS -gt 20 ]; do sleep 0.1; done
seq 200000 | go 'sort -rn | md5sum'
for i in 1 2 3 4 5; do go "echo round $i; exit $i"; echo "status $?"; done
head -c 30000000 /dev/zero | tr '\0' 'a' | go cat | md5sum
go -tt 'for i in $(seq 500); do echo "line $i"; done' < /dev/null | tr -d '\r' | cksum
kill %1
wait %1
echo "status $?"
'''


# It asks for io_uring, then for libaio, and goes its own way.
MARIADB = r'''
mariadbd --no-defaults --datadir="$PWD/data" --socket="$SOCKETS/s" --skip-networking --pid-file="$SOCKETS/pid" 2> log &
mariadb-admin -uroot --socket="$SOCKETS/s" --wait=20 ping > /dev/null 2>&1
ask() { mariadb -uroot --socket="$SOCKETS/s" -N "$@"; }
ask -e 'create database t; create table t.a(i int primary key auto_increment, v int) engine=innodb'
for k in $(seq 40); do
	echo 'start transaction;'
	for i in $(seq 20); do echo "insert into t.a(v) values($((k * i)));"; done
	echo 'update t.a set v = v + 1; commit;'
done | ask
for k in 1 2 3; do (for j in $(seq 20); do ask -e "update t.a set v = v + $k"; done) & done
wait %2 %3 %4
ask -e 'select count(*), sum(v) from t.a'
mariadb-admin -uroot --socket="$SOCKETS/s" shutdown
wait
echo "status $?"
'''


PROGRAMS = [
    Recipe('sqlite-wal', 'sqlite3 db < input', needs=['sqlite3'], inputs={'input': 'PRAGMA journal_mode=WAL;\n' + SQLITE}),
    Recipe('sqlite-journal', 'sqlite3 db < input', needs=['sqlite3'], inputs={'input': 'PRAGMA synchronous=OFF;\n' + SQLITE}),
    Recipe('redis', REDIS, needs=['redis-server', 'redis-cli']),
    Recipe('postgresql', POSTGRES, needs=['psql'], inputs={'input.sql': SQL},
           prepare='"$(ls -d /usr/lib/postgresql/*/bin | tail -1)/initdb" -D data -A trust -N'),
    Recipe('mariadb', MARIADB, needs=['mariadbd', 'mariadb-install-db'],
           prepare='mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db > /dev/null 2>&1'),
    Recipe('nginx-wrk', NGINX, needs=['/usr/sbin/nginx', 'wrk'], inputs={'nginx.conf': NGINX_CONF},
           prepare='mkdir www tmp; seq 1000 > www/file; seq 300000 > www/large'),
    Recipe('ssh', SSH, needs=['/usr/sbin/sshd', 'ssh'], prepare="ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f user",
           passing='a seccomp filter of its own'),  # of sshd's child while it authenticates
]
