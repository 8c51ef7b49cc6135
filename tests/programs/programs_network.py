# SPDX-License-Identifier: BSD-2-Clause
"""Servers of names, directories and pages, and who keeps others running: each under its clients, in one job, on loopback."""
from recipe import Recipe

DNSMASQ = r'''
cat > conf <<EOF
no-resolv
no-hosts
port=$PORT
listen-address=127.0.0.1
bind-interfaces
cache-size=100
EOF
for i in $(seq 50); do echo "address=/h$i.test/10.0.0.$i"; done >> conf
dnsmasq -k -C conf --user=$(id -un) --pid-file=$PWD/pid 2> log & s=$!
until dig +short +time=1 +tries=1 -p $PORT @127.0.0.1 h1.test | grep -q 10; do sleep 0.05; done
for i in $(seq 50); do dig +short -p $PORT @127.0.0.1 h$i.test; dig +tcp +short -p $PORT @127.0.0.1 h$i.test; done
kill $s; wait $s; echo ended
'''

NAMED = r'''
cat > named.conf <<EOF
options { directory "$PWD"; listen-on port $PORT { 127.0.0.1; }; listen-on-v6 { none; }; pid-file "$PWD/pid"; session-keyfile "$PWD/key"; recursion no; };
controls { };
zone "z.test" { type master; file "$PWD/zone"; };
EOF
{ echo '$TTL 60'; echo '@ IN SOA a.z.test. b.z.test. 1 60 60 60 60'; echo '@ IN NS a.z.test.'; echo 'a IN A 10.0.0.1'; for i in $(seq 60); do echo "h$i IN A 10.1.0.$i"; done; } > zone
named -g -c named.conf -n 2 2> log & s=$!
until dig +short +time=1 +tries=1 -p $PORT @127.0.0.1 a.z.test | grep -q 10; do sleep 0.05; done
for i in $(seq 60); do dig +short -p $PORT @127.0.0.1 h$i.z.test; dig +tcp +short -p $PORT @127.0.0.1 h$i.z.test; done
kill $s; wait $s; echo ended
'''

SQUID = r'''
mkdir www cache; for i in 1 2 3; do head -c ${i}0000 /dev/zero | tr '\0' $i > www/$i; done
P2=$((PORT + 2000))
/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory www $P2 > server.log 2>&1 & server=$!
cat > conf <<EOF
http_port 127.0.0.1:$PORT
http_access allow all
cache_mem 8 MB
pid_filename $PWD/pid
access_log none
cache_log $PWD/cache.log
netdb_filename none
coredump_dir $PWD
shutdown_lifetime 1 seconds
EOF
squid -N -f $PWD/conf 2> log & s=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
until (exec 3<> /dev/tcp/127.0.0.1/$P2) 2> /dev/null; do sleep 0.05; done
for i in $(seq 60); do curl -sS -x http://127.0.0.1:$PORT http://127.0.0.1:$P2/$((i % 3 + 1)) 2>&1 | md5sum; done
kill $s; wait $s; kill $server; wait $server; echo ended
'''

SUPERVISOR = r'''
cat > conf <<EOF
[supervisord]
nodaemon=true
logfile=$PWD/log
pidfile=$PWD/pid
childlogdir=$PWD
[unix_http_server]
file=$SOCKETS/s
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://$SOCKETS/s
[program:a]
command=bash -c 'for i in \$(seq 40); do echo a \$i; sleep 0.05; done'
stdout_logfile=$PWD/a.log
autorestart=false
startsecs=0
[program:b]
command=bash -c 'echo begun >> $PWD/b.times; sleep 0.3; exit 3'
stdout_logfile=NONE
startretries=100
startsecs=0
autorestart=unexpected
exitcodes=3
EOF
supervisord -c conf > /dev/null 2>&1 & s=$!
until [ -S $SOCKETS/s ]; do sleep 0.05; done
for i in 1 2 3 4; do supervisorctl -c conf start b > /dev/null; until supervisorctl -c conf status b | grep -q EXITED; do sleep 0.1; done; done
until supervisorctl -c conf status a | grep -q EXITED; do sleep 0.1; done
cat a.log; sort b.times | uniq -c | awk '{print ($1 >= 4)}'
supervisorctl -c conf shutdown; wait $s; echo ended
'''

SLAPD = r'''
mkdir db
cat > conf <<EOF
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $PWD/pid
database mdb
maxsize 100000000
suffix "dc=t"
rootdn "cn=a,dc=t"
rootpw x
directory $PWD/db
EOF
slapd -f conf -h ldap://127.0.0.1:$PORT -d 0 2> log & s=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
printf 'dn: dc=t\nobjectClass: dcObject\nobjectClass: organization\no: t\ndc: t\n' | ldapadd -x -D cn=a,dc=t -w x -H ldap://127.0.0.1:$PORT > /dev/null
for i in $(seq 50); do printf "dn: ou=u$i,dc=t\nobjectClass: organizationalUnit\nou: u$i\n" | ldapadd -x -D cn=a,dc=t -w x -H ldap://127.0.0.1:$PORT; ldapsearch -LLL -x -H ldap://127.0.0.1:$PORT -b dc=t '(ou=*)' ou | grep -c ^ou; done
kill $s; wait $s; echo ended
'''

PROGRAMS = [
    Recipe('dnsmasq', DNSMASQ, needs=['/usr/sbin/dnsmasq', 'dig']),
    Recipe('named', NAMED, needs=['/usr/sbin/named', 'dig']),
    Recipe('squid', SQUID, needs=['/usr/sbin/squid', 'curl']),
    Recipe('supervisor', SUPERVISOR, needs=['supervisord']),
    Recipe('slapd', SLAPD, needs=['/usr/sbin/slapd', 'ldapadd']),
]
