# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests of a device, which come with python3-pyverbs."""
import gzip
import re
from pathlib import Path

from harness import Failure, Skip, under_test
from pairs import Pair

PYVERBS = Path('/usr/share/doc/rdma-core/tests')
PASS = 138  # of 273; 96 on Soft-RoCE, where one fails. doc/softrdma.md says why the others are skipped
PASS_ROCE = 135  # these look at the first GID, which is of RoCE v1, and want v2 for datagrams of rdma_cm
# They look in /sys for the network interface of the device, to learn an address for rdma_cm.
RUNNER = """
import sys, unittest
sys.path.insert(0, sys.path[0] + '/tests')
import tests
from args_parser import parser
parser.parse_args()
tests.base.RDMATestCase._get_ip_mac = lambda self, *where: self.args.append([*where, '127.0.0.1', '00:00:00:00:00:00'])
unittest.main(module=tests)
"""


def unpacked(folder):
    """The tests as a package; the distribution compresses the longer files."""
    package = folder / 'tests'
    package.mkdir()
    for source in PYVERBS.iterdir():
        to = package / source.name.removesuffix('.gz')
        to.write_bytes(gzip.open(source).read() if source.suffix == '.gz' else source.read_bytes())
    (folder / 'runner.py').write_text(RUNNER)
    return folder / 'runner.py'


def verdict(status, text, least):
    """What the runner says in its end: how many pass and are skipped."""
    found = re.search(r'^Ran (\d+) tests.*?^(OK|FAILED) ?\(?(.*?)\)?$', text, re.M | re.S)
    if not found:
        raise Failure(f'status {status}, and no sum\n{text[-3000:]}')
    skipped = int(re.search(r'skipped=(\d+)|$', found[3])[1] or 0)
    failed = re.findall(r'^(?:ERROR|FAIL): (\S+)', text, re.M)
    passed = int(found[1]) - skipped - len(failed)
    if status or failed or passed < least:
        raise Failure(f'{passed} of {found[1]} pass, {skipped} are skipped; these fail: {" ".join(failed)}\n{text[-2000:]}')
    return f'{passed} pass, {skipped} are skipped'


def with_tests(options, body, environment={}):
    """@body(pair, argv): runs them, and says what came of it."""
    def test(folder):
        if not PYVERBS.is_dir():
            raise Skip('python3-pyverbs is not installed')
        pair = Pair(options, folder, ['pyverbs'])
        pair.job.env.update(environment)
        with under_test(pair.job, pair.clean):
            return body(pair, ['/usr/bin/python3', unpacked(folder), '-v'])
    return test
