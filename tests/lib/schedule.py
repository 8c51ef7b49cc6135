# SPDX-License-Identifier: BSD-2-Clause
"""Which checkpoint tests there are, as whom each runs, and running them.

Tests run from a copy of what was built, in a folder that an ordinary user can read: a clone may lie where only root can
look, and a test then also shows that fermata finds its parts wherever it lies. As root, everything runs as an
ordinary user ("nobody", without any capability); a part of it runs as root and in a user namespace of its own, too.
"""
import os
import random
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUITES = ['feature', 'rdma', 'fault']
NOBODY = 65534

ALL_MODES = 'bare,continue,restart,rounds,random'
# What is not run in every mode. The refuse ones take the kind of object as their argument.
SPECIAL_MODES = {
    'refuse': 'refuse',
    'refuse_kernel': 'refuse',
    'refuse_confined': 'refuse',
    'refuse_tracer': 'refuse',
    'many_descriptors': 'bare,restart',  # these two take their time
    'many_threads': 'bare,restart',
    'growing': 'bare,rounds',  # nothing of them is under way at any moment
    'memfds': 'bare,rounds',
    'path_descriptors': 'bare,rounds',
    'sandboxed': 'bare,continue,restart',
    'stdio': ALL_MODES + ',tty,file',
    'terminal': 'tty',
    'wide_streams': 'bare,restart,rounds',  # half a minute else
    'verbs_churn': 'continue,restart,rounds,random',  # there is no device without fermata
    'verbs_high': 'continue,restart,rounds,random',
    'verbs_late': 'continue,restart,rounds,random',
    'verbs_mesh': 'continue,restart,rounds,random',
    'verbs_regions': 'continue,restart,rounds,random',
}
REFUSED = {
    'refuse': ['inotify_unread', 'stale_epoll', 'struck_semaphore', 'netlink', 'lease', 'notes', 'filter_thread', 'filter_child', 'traced', 'traced_by_two', 'attached', 'hidden', 'urgent_tcp', 'urgent_unix', 'relative_socket', 'unaccepted', 'unaccepted_unix', 'reset_datagrams', 'mixed_pipe', 'mixed_pipe_2'],
    'refuse_kernel': ['io_uring', 'userfaultfd', 'perf', 'fanotify', 'pidfd_foreign', 'sealed_map', 'aio', 'secret', 'segment', 'zerocopy', 'no_threads', 'rearranged', 'deep'],
    'refuse_tracer': ['asked', 'seized', 'forks'],
    'refuse_confined': ['namespace', 'namespace_raw', 'namespace_exec', 'namespace_thread', 'rooted', 'landlock', 'landlock_exec', 'securebits', 'securebits_exec', 'dispatch', 'keys', 'keys_thread', 'session_keyring_exec', 'session_key_exec'],
}
# Features that take another argument.
ARGUMENTS = {'traced': ['by_first', 'by_thread'], 'woken': ['waits', 'semaphores']}
# Kept by an IPC namespace: without one a restart refuses them, and so messages under way that bear the pid of another process.
REFUSED_WITHOUT = ['semaphores', 'message_queues', 'posix_queues', 'sysv_memory', 'sparse_shared', 'struck_semaphore', 'unix_datagrams', 'medley']
# Where kcmp is refused each descriptor is held against each other one of its inode.
SLOW_WITHOUT = ['many_descriptors']
# Run by root of a bare user namespace, where an ordinary user has the rights it takes.
WITH_RIGHTS = ['refuse_confined']
# Run by root and in a bare user namespace as well.
EVERYWHERE = ['advised', 'attributes', 'threads', 'fork_tree', 'sockets', 'semaphores', 'message_queues', 'posix_queues']
# In a default container as well: pids of its own that soon begin again, and what tests/lib/confined.c refuses, so that a restart has to do without a
# capsule. The suite "container" does that with all, in all modes.
CONTAINER = ['unshare', '--map-root-user', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c',
             f'echo 6000 > /proc/sys/kernel/pid_max; exec unshare --map-user={NOBODY} --map-group={NOBODY} "$@"', 'sh']
CONTAINED = ['alone', 'deleted_memory', 'epolls', 'exec_chain', 'fds_in_flight', 'files', 'fork_tree', 'full_streams', 'leader_exit', 'locks', 'pipes', 'ptys', 'sessions',
             'shared_memory', 'sockets', 'spawn', 'threads', 'verbs_mesh', 'zombies']
CONTAINED_MODES = 'continue,restart,rounds'
# Restarted in a capsule where only what concerns descriptors is refused.
DESCRIPTORS = ['epolls', 'fds_in_flight', 'fork_tree', 'locks', 'pipes', 'posix_queues', 'ptys', 'sockets', 'unix_datagrams', 'verbs_mesh']


class Item:
    """One test process: it prints a result for each of its tests."""

    def __init__(self, suite, argv, identity='user', exclusive=False, limit=1800):
        self.suite, self.argv, self.identity, self.exclusive, self.limit = suite, argv, identity, exclusive, limit


def identity_prefix(stage, identity):
    as_user = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', '--bounding-set=-all'] \
        if os.getuid() == 0 else []
    confined = stage.top / 'tests/lib/confined'
    return {'root': [], 'user': as_user, 'userns': [*as_user, 'unshare', '-Ur'],
            'container': [*as_user, *CONTAINER, confined], 'descriptors': [*as_user, confined, '-d']}[identity]


def identities():
    return ['user', 'userns'] + (['root'] if os.getuid() == 0 else [])


class Stage:
    """The copy that tests run from, and the folders they work in."""

    def __init__(self, build):
        self.top = Path(tempfile.mkdtemp(prefix='fermata-test-'))
        self.top.chmod(0o755)
        self.bin = self.top / 'build/bin'
        for part in ('bin', 'lib'):
            shutil.copytree(build / part, self.top / 'build' / part)
        shutil.copytree(ROOT / 'doc', self.top / 'doc')
        (self.top / 'build/examples').mkdir()
        shutil.copytree(ROOT / 'examples/slurm', self.top / 'examples/slurm')
        shutil.copy(build / 'examples/late_bug', self.top / 'build/examples')
        shutil.copytree(ROOT / 'tests', self.top / 'tests', ignore=shutil.ignore_patterns('unit', 'fuzz', '*.c', '*.h'))
        for folder in ('lib', 'feature', 'rdma', 'apps', 'fault'):
            for program in (build / 'tests' / folder).glob('*'):
                if program.is_file() and os.access(program, os.X_OK):
                    shutil.copy(program, self.top / 'tests' / folder / program.name)
        self.work = {}
        for identity in [*identities(), 'container', 'descriptors']:
            self.work[identity] = self.top / identity
            self.work[identity].mkdir(mode=0o700)
            if os.getuid() == 0 and identity != 'root':
                os.chown(self.work[identity], NOBODY, NOBODY)

    def remove(self):
        shutil.rmtree(self.top, ignore_errors=True)


def feature_items(stage):
    driver = stage.top / 'tests/lib/driver'
    items = []
    for program in sorted((stage.top / 'tests/feature').glob('feature_*')):
        name = program.name.removeprefix('feature_')
        modes = SPECIAL_MODES.get(name, ALL_MODES)
        for argument in {**REFUSED, **ARGUMENTS}.get(name, [None]):
            argv = [driver, '--modes', modes, program, *([argument] if argument else [])]
            for identity in identities() if name in EVERYWHERE else ['userns'] if name in WITH_RIGHTS else ['user']:
                items.append(Item('feature', argv, identity))
        for identity, names, less in ('container', CONTAINED, CONTAINED_MODES), ('descriptors', DESCRIPTORS, 'rounds'):
            if name in names:
                items.append(Item('feature', [driver, '--modes', less, program], identity))
    items.append(Item('feature', [stage.top / 'tests/programs/test-programs', '--short']))
    return items


def container_items(stage):
    """Every feature where a restart has no namespaces."""
    items = [i for i in feature_items(stage) if i.identity == 'user' and not any(str(a).endswith(name) for a in i.argv for name in REFUSED_WITHOUT + SLOW_WITHOUT)]
    for item in items:
        item.identity = 'container'
    return items


def script_items(stage, suite, name='test-*'):
    """Every executable script of the suite's folder. Near its top: "exclusive", it wants the machine alone; "everywhere", as all
    of identities(); with the quotes: "container", there as well; "container only"; "root": as root alone, who else would skip."""
    items = []
    for script in sorted((stage.top / 'tests' / suite).glob(name)):
        head = script.read_text().splitlines()[:12]
        exclusive = any('exclusive' in line for line in head)
        only = any('"container only"' in line for line in head)
        wanted = [] if only else identities() if any('everywhere' in line for line in head) else \
            identities()[-1:] if any('"root"' in line for line in head) and os.getuid() == 0 else ['user']
        for identity in [*wanted, *(['container'] if only or any('"container"' in line for line in head) else [])]:
            items.append(Item(suite, [script], identity, exclusive))
    return items


def long_items(stage):
    scripts = ('test-jobs', 'test-hosts-jobs', 'test-softrdma')
    mesh = [stage.top / 'tests/lib/driver', '--modes', SPECIAL_MODES['verbs_mesh'], stage.top / 'tests/feature/feature_verbs_mesh', '64']
    return [Item('feature', mesh, exclusive=True), *(Item('rdma', [stage.top / 'tests/rdma' / s, '--long'], exclusive=True, limit=6 * 3600)
            for s in scripts)]


def program_items(stage):
    return [Item('rdma', [stage.top / 'tests/rdma/test-ucx', '--long'], exclusive=True, limit=3600),
            *script_items(stage, 'rdma', 'programs-*'),
            Item('programs', [stage.top / 'tests/programs/test-programs'], limit=3 * 3600)]


def peers_items(stage):
    return [Item('rdma', [stage.top / 'tests/rdma/test-peers', '--long'], exclusive=True, limit=2 * 3600)]


def apps_items(stage):
    """An item a code, so that what it has come to is seen when it is there."""
    names = sorted(path.stem.removeprefix('code_') for path in (stage.top / 'tests/apps').glob('code_*.py'))
    codes = [Item('apps', [stage.top / 'tests/apps/test-apps', '--code', name], exclusive=True, limit=2 * 3600) for name in names]
    return [*codes, *(Item('apps', [stage.top / 'tests/apps' / name], exclusive=True) for name in ('test-mpi-hosts', 'test-slurm'))]


def apps_long_items(stage):
    """A minute or more each, and five pairs of runs to compare times by: hours."""
    return [Item('apps-long', [*item.argv, '--times', '60', '--pairs', '5'], exclusive=True, limit=12 * 3600) for item in apps_items(stage) if '--code' in item.argv]


def take_guest(stage):
    shutil.copytree(ROOT / 'tools/guest', stage.top / 'tools/guest', dirs_exist_ok=True)
    shutil.copy(ROOT / 'tools/rxe-guest', stage.top / 'tools')


def apps_rxe_items(stage):
    """On a real kernel device, in a guest a code."""
    take_guest(stage)
    return [Item('apps-rxe', [stage.top / 'tests/apps/apps-rxe', *item.argv[1:]], exclusive=True, limit=2 * 3600) for item in apps_items(stage) if '--code' in item.argv]


def guest_items(stage):
    """On another kernel and processor, emulated."""
    take_guest(stage)
    return [Item('guest', [stage.top / 'tests/feature/guest-suite', part], exclusive=True, limit=3600) for part in ('feature', 'fault')]


def rxe_items(stage):
    """With a real kernel device, in a guest of tools/rxe-guest."""
    take_guest(stage)
    return [Item('rxe', [stage.top / 'tests/rdma' / name], exclusive=True, limit=2400) for name in ('rxe-suite', 'rxe-hosts')]


ITEMS = {'feature': feature_items, 'long': long_items, 'programs': program_items, 'peers': peers_items, 'rxe': rxe_items, 'guest': guest_items,
         'container': container_items, 'apps': apps_items, 'apps-long': apps_long_items, 'apps-rxe': apps_rxe_items}


def run_item(options, stage, item):
    """[(status, name, seconds, text)]"""
    argv = [str(a) for a in item.argv]
    command = [*identity_prefix(stage, item.identity), argv[0], '--bin', str(stage.bin), '--folder',
               str(stage.work[item.identity]), '--seed', str(options.seed), *(['--keep'] if options.keep else []),
               *(['--only', options.only] if options.only else []), *argv[1:]]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE='1', PYTHONPATH=str(stage.top / 'tests/lib'))
    label = f'{item.suite}{"" if item.identity == "user" else "@" + item.identity}'
    begin = time.monotonic()
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors='replace', timeout=item.limit,
                                stdin=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired as e:
        return [('FAIL', f'{label}/{Path(argv[0]).name}', item.limit, f'took too long\n{e.output or ""}')]
    results = []
    for line in result.stdout.splitlines():
        words = line.split(' ', 3)
        if words[0] in ('ok', 'FAIL', 'skip') and len(words) >= 3:
            results.append([words[0], f'{label}/{words[1]}', float(words[2]), words[3] if len(words) > 3 else ''])
        elif results:
            results[-1][3] += '\n' + line
    if result.returncode not in (0, 1) or (result.returncode == 1) != any(r[0] == 'FAIL' for r in results):
        results.append(('FAIL', f'{label}/{Path(argv[0]).name}', time.monotonic() - begin,
                        f'status {result.returncode}: {result.stderr[-2000:]}'))
    return results


def selected(options, item):
    """Whether --only may mean a test of this item. Scripts look at it themselves."""
    return not options.only or item.suite != 'feature' or \
        any(options.only.split('/')[0] in Path(a).name for a in item.argv)


def run(options, suites, total):
    options.seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1 << 31)
    stage = Stage(options.build)
    try:
        items = []
        for suite in suites:
            make = ITEMS.get(suite)
            items += make(stage) if make else script_items(stage, suite)
        items = [i for i in items if selected(options, i)]
        if options.list:
            for item in items:
                print(item.suite, item.identity, ' '.join(str(Path(a).name) for a in item.argv))
            return
        print(f'seed {options.seed}', flush=True)
        with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
            for results in pool.map(lambda i: run_item(options, stage, i), [i for i in items if not i.exclusive]):
                for result in results:
                    total.add(*result)
        for item in items:
            if item.exclusive:
                for result in run_item(options, stage, item):
                    total.add(*result)
    finally:
        if not (options.keep and total.count['FAIL']):
            stage.remove()
        else:
            print(f'kept: {stage.top}')
