# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch: a network that is trained with samples from worker processes, by one process and by two that share their gradients over gloo. scikit-learn and numpy on joblib's workers, and on dask's."""
from recipe import Recipe

TRAIN = r'''
import hashlib, os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Signs(Dataset):
    def __len__(self):
        return 640
    def __getitem__(self, i):
        x = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(i))
        return x, (x.sum() > 0).long()

def main():
    epochs, threads, sharing = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rank, ranks = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.multiprocessing.set_sharing_strategy(sharing)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 144, 2))
    if ranks > 1:
        dist.init_process_group('gloo')
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Signs(), 32, num_workers=2, persistent_workers=True, shuffle=True, generator=torch.Generator().manual_seed(rank))
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(epoch, total.hex(), flush=True)
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'state')
    if rank == 0:
        print(*(hashlib.sha256(p.detach().numpy().tobytes()).hexdigest() for p in model.parameters()), sep='\n')

main()
'''

TWO = r'''
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT WORLD_SIZE=2
RANK=1 /usr/bin/python3 train.py 16 1 file_descriptor & other=$!
RANK=0 /usr/bin/python3 train.py 16 1 file_descriptor
wait $other || echo "rank 1 ended with status $?"
'''

JOBLIB = r'''
import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

def norm(i):
    a = np.random.RandomState(i).rand(200, 200)
    return float(np.linalg.norm(a @ a))

if __name__ == '__main__':
    for turn in range(5):
        print(sum(Parallel(n_jobs=3)(delayed(norm)(i + turn * 100) for i in range(60))).hex(), flush=True)
    x, y = make_classification(2000, 20, random_state=1)
    forest = RandomForestClassifier(100, n_jobs=2, random_state=2).fit(x, y)
    print(forest.score(x, y), forest.feature_importances_.tolist())
'''

DASK = r'''
import logging
import dask.array as da
from distributed import Client, LocalCluster

if __name__ == '__main__':
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR) as cluster, Client(cluster) as client:
        for turn in range(6):
            x = da.random.RandomState(turn).randint(0, 1000, (600, 600), chunks=(200, 200))
            print(turn, int((x @ x.T).sum().compute()), flush=True)
'''

TORCH = '/usr/lib/python3/dist-packages/torch/__init__.py'

PROGRAMS = [
    Recipe('torch', '/usr/bin/python3 train.py 24 2 file_descriptor', needs=[TORCH], inputs={'train.py': TRAIN}),
    Recipe('joblib', '/usr/bin/python3 program', needs=['/usr/lib/python3/dist-packages/joblib', '/usr/lib/python3/dist-packages/sklearn'], inputs={'program': JOBLIB}),
    Recipe('dask', '/usr/bin/python3 program', needs=['/usr/lib/python3/dist-packages/distributed'], inputs={'program': DASK}),
    Recipe('torch-ranks', TWO, needs=[TORCH], inputs={'train.py': TRAIN}),
]
