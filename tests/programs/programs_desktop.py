# SPDX-License-Identifier: BSD-2-Clause
"""What runs at a desk, and by itself in pipelines: browsers, an office, a notebook's kernel."""
from recipe import Recipe

# Their sandboxes are namespaces and filters, which a checkpoint refuses. Chromium's processes are forked by one that looks first whether it is alone (feature alone); it ends them by SIGTERM.
CHROMIUM = r'''
cat > page.html <<'EOF'
<html><body><script>
let s = 0;
function step(n) {
  for (let i = 0; i < 3e7; i++) s = (s * 31 + i) % 1000003;
  const p = document.createElement('p'); p.textContent = n + ': ' + s; document.body.appendChild(p);
  if (n < 40) setTimeout(() => step(n + 1), 10);
}
step(0);
</script></body></html>
EOF
chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/profile --virtual-time-budget=20000 --dump-dom file://$PWD/page.html 2> log; echo $?
'''

FIREFOX = r'''
cat > page.html <<'EOF'
<html><body><canvas id=c width=300 height=300></canvas><script>
const c = document.getElementById('c').getContext('2d');
for (let i = 0, s = 0; i < 300; i++) {
  for (let k = 0; k < 1e5; k++) s = (s * 31 + k) % 1000003;
  c.fillStyle = 'rgb(' + s % 255 + ',' + i % 255 + ',0)'; c.fillRect(s % 300, i, 5, 5);
}
</script></body></html>
EOF
mkdir profile
MOZ_ASSUME_USER_NS=0 MOZ_DISABLE_CONTENT_SANDBOX=1 firefox-esr --profile $PWD/profile --headless --screenshot $PWD/shot.png --window-size=400,400 file://$PWD/page.html > log 2>&1; echo $?
/usr/bin/python3 -c "import struct; d = open('shot.png', 'rb').read(); print(d[1:4], struct.unpack('>II', d[16:24]))"
'''

# A sheet of 6000 products, to its own format and back.
LIBREOFFICE = r'''
/usr/bin/python3 -c "
print('a,b,c')
for i in range(6000): print('%d,%d,=A%d*B%d' % (i * 7919 % 1000, i * 104729 % 1000, i + 2, i + 2))" > t.csv
convert() { soffice -env:UserInstallation=file://$PWD/profile --headless --convert-to "$1" --outdir $2 $3 > /dev/null 2>&1; }
for n in 1 2; do
    convert ods o$n t.csv; convert 'csv:Text - txt - csv (StarCalc):44,34,76' o$n o$n/t.ods
    md5sum < o$n/t.csv; tail -1 o$n/t.csv
done
'''

JUPYTER = r'''
cat > notebook.py <<'EOF'
import jupyter_client
manager, client = jupyter_client.manager.start_new_kernel(kernel_name='python3')
def run(code):
    out = []
    client.execute_interactive(code, output_hook=lambda m: out.append(m['content'].get('text', m['msg_type'] if m['msg_type'] == 'error' else '')), timeout=120)
    return ''.join(out).strip()
run('import time, hashlib\nx = b"a"')
for i in range(60):
    print(i, run('for k in range(20): x = hashlib.sha256(x).hexdigest().encode()\ntime.sleep(0.03)\nprint(x)'), flush=True)
client.stop_channels(); manager.shutdown_kernel(now=False)
print('ended')
EOF
/usr/bin/python3 notebook.py
'''

PROGRAMS = [
    Recipe('chromium', CHROMIUM, needs=['chromium'], passing=r'was lost in SUSPEND: signal 15'),
    Recipe('firefox', FIREFOX, needs=['firefox-esr'], passing=r'has a namespace'),
    Recipe('libreoffice', LIBREOFFICE, needs=['soffice']),
    Recipe('jupyter', JUPYTER, needs=['jupyter-kernel', '/usr/lib/python3/dist-packages/ipykernel']),
]
