# SPDX-License-Identifier: BSD-2-Clause
"""Servers of the web and of messages under their clients, in one job. All of them listen on loopback, or in a folder."""
from recipe import Recipe

# It puts the file of its socket in its place when it listens, and lets itself have no more threads but for insecure-fork-wanted.
HAPROXY = r'''
mkdir www; head -c 20000 /dev/zero | tr '\0' 7 > www/x
/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory www $PORT > server.log 2>&1 & server=$!
cat > conf <<EOF
global
    maxconn 200
    nbthread 2
    insecure-fork-wanted
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend f
    bind unix@$SOCKETS/h
    default_backend b
backend b
    server s 127.0.0.1:$PORT
EOF
haproxy -f conf & proxy=$!
ask() { curl -sS --unix-socket $SOCKETS/h http://localhost/x; }
until [ -S $SOCKETS/h ] && ask > /dev/null 2>&1; do sleep 0.05; done
for i in $(seq 60); do ask 2>&1 | md5sum; sleep 0.02; done
kill $proxy; wait $proxy; kill $server; wait $server; echo ended
'''

APACHE = r'''
mkdir www; for i in 1 2 3; do head -c ${i}0000 /dev/zero | tr '\0' $i > www/$i; done
cat > conf <<EOF
ServerRoot $PWD
ServerName localhost
Listen 127.0.0.1:$PORT
PidFile $PWD/pid
ErrorLog $PWD/error
Mutex file:$SOCKETS default
DefaultRuntimeDir $SOCKETS
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DocumentRoot $PWD/www
<Directory $PWD/www>
Require all granted
</Directory>
EOF
/usr/sbin/apache2 -f $PWD/conf -DFOREGROUND & server=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
for i in 1 2 3 1 2 3; do ab -q -n 1500 -c 20 http://127.0.0.1:$PORT/$i | grep -E '^(Complete|Failed|HTML|Document Length)'; done
kill $server; wait $server; echo ended
'''

# It ends its process group.
LIGHTTPD = r'''
mkdir www; for i in 1 2 3; do head -c ${i}00000 /dev/zero | tr '\0' $i > www/$i; done
printf 'server.document-root = "%s/www"\nserver.port = %s\nserver.bind = "127.0.0.1"\nserver.max-worker = 2\nserver.stat-cache-engine = "inotify"\n' $PWD $PORT > conf
setsid lighttpd -D -f conf 2> log & s=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
for i in 1 2 3 1 2 3; do ab -k -q -n 1500 -c 20 http://127.0.0.1:$PORT/$i | grep -E '^(Complete|Failed|HTML|Document Length)'; done
kill $s; wait $s; echo ended
'''

# Three processes for twelve who ask: some always wait to be accepted.
GUNICORN = r'''
cat > app.py <<'EOF'
import time
def app(env, start):
    time.sleep(0.01); q = env['QUERY_STRING']; start('200 OK', [('Content-Type', 'text/plain')]); return [str(int(q) * 3).encode()]
EOF
cat > c.py <<'EOF'
import urllib.request, concurrent.futures, os
def get(i):
    return urllib.request.urlopen('http://127.0.0.1:%s/?%d' % (os.environ['PORT'], i)).read().decode()
with concurrent.futures.ThreadPoolExecutor(12) as e: print(list(e.map(get, range(400))))
EOF
/usr/bin/python3 -m gunicorn -w 3 -b 127.0.0.1:$PORT --worker-tmp-dir $SOCKETS --log-level error -t 300 app:app 2> log & s=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
/usr/bin/python3 c.py
kill $s; wait $s; echo ended
'''

MEMCACHED = r'''
memcached -U 0 -l 127.0.0.1 -p $PORT -t 4 $([ $(id -u) = 0 ] && echo -u root) & server=$!
until exec 3<> /dev/tcp/127.0.0.1/$PORT; do sleep 0.02; done 2> /dev/null
for ((i = 0; i < 50; i++)); do
	v=value-$((i * 17 % 101))
	printf 'set key-%d 0 0 %d\r\n%s\r\nget key-%d\r\nincr count 1\r\n' $i ${#v} $v $((i / 2)) >&3
	((i)) || printf 'set count 0 0 1\r\n0\r\n' >&3
	read -r a <&3; read -r b <&3; read -r c <&3; read -r d <&3; read -r e <&3
	((i)) || read -r f <&3
	echo "$i ${c%?} ${e%?}"
	((i % 10)) || sleep 0.05
done
kill $server
wait $server
echo ended
'''

MOSQUITTO = r'''
printf 'listener %s 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location %s/\n' $PORT $PWD > conf
mosquitto -c conf 2> log & s=$!
until (exec 3<> /dev/tcp/127.0.0.1/$PORT) 2> /dev/null; do sleep 0.05; done
mosquitto_sub -h 127.0.0.1 -p $PORT -q 2 -t a/# -c -i sub -E
mosquitto_sub -h 127.0.0.1 -p $PORT -q 2 -t a/# -c -i sub -C 60 > got & u=$!
for i in $(seq 60); do mosquitto_pub -h 127.0.0.1 -p $PORT -q 2 -t a/$i -m "message $i"; done
wait $u; cat got
kill $s; wait $s; echo ended
'''

DBUS = r'''
cat > service.py <<'EOF'
import dbus, dbus.service, os
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib
DBusGMainLoop(set_as_default=True)
class O(dbus.service.Object):
    @dbus.service.method('org.x.Y', in_signature='i', out_signature='i')
    def twice(self, x): return 2 * x
bus = dbus.SessionBus(); name = dbus.service.BusName('org.x.Y', bus); O(bus, '/o'); print('there', flush=True); GLib.MainLoop().run()
EOF
cat > client.py <<'EOF'
import dbus, time
o = dbus.SessionBus().get_object('org.x.Y', '/o')
for i in range(100):
    print(int(o.twice(i, dbus_interface='org.x.Y')), flush=True); time.sleep(0.02)
EOF
cat > conf <<EOF
<busconfig><type>session</type><listen>unix:path=$SOCKETS/bus</listen><auth>EXTERNAL</auth><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
EOF
dbus-daemon --config-file=$PWD/conf --nofork & bus=$!
export DBUS_SESSION_BUS_ADDRESS=unix:path=$SOCKETS/bus
until [ -S $SOCKETS/bus ]; do sleep 0.05; done
/usr/bin/python3 service.py > out & service=$!
until grep -q there out; do sleep 0.05; done
/usr/bin/python3 client.py
kill $service; wait $service; kill $bus; wait $bus; echo ended
'''

XVFB = r'''
cat > p.py <<'EOF'
import tkinter, time
root = tkinter.Tk(); c = tkinter.Canvas(root, width=300, height=200); c.pack()
n = 0; t = c.create_text(100, 100, text='0')
def step():
    global n
    n += 1; c.itemconfig(t, text=str(n)); c.create_line(n, 0, 300 - n, 200)
    if n == 150: print(n, c.bbox(t) is not None, len(c.find_all()), flush=True); root.destroy()
    else: root.after(10, step)
root.after(10, step); root.mainloop()
EOF
n=$((PORT % 500 + 100))
Xvfb :$n -screen 0 640x480x24 -nolisten tcp 2> /dev/null & x=$!
until [ -S /tmp/.X11-unix/X$n ]; do sleep 0.05; done
DISPLAY=:$n /usr/bin/python3 p.py
DISPLAY=:$n xwininfo -root | grep Width
kill $x; wait $x; echo ended $?
'''

PROGRAMS = [
    Recipe('haproxy', HAPROXY, needs=['haproxy', 'curl']),
    Recipe('apache-event', APACHE, needs=['/usr/sbin/apache2', 'ab']),
    Recipe('lighttpd', LIGHTTPD, needs=['/usr/sbin/lighttpd', 'ab']),
    Recipe('gunicorn', GUNICORN, needs=['/usr/lib/python3/dist-packages/gunicorn']),
    Recipe('memcached', MEMCACHED, needs=['memcached']),
    Recipe('mosquitto', MOSQUITTO, needs=['/usr/sbin/mosquitto', 'mosquitto_pub']),
    Recipe('dbus', DBUS, needs=['dbus-daemon', '/usr/lib/python3/dist-packages/dbus']),
    Recipe('xvfb-tk', XVFB, needs=['Xvfb', 'xwininfo', '/usr/lib/python3.11/tkinter']),
]
