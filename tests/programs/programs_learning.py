# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch: a network that is trained with samples from worker processes, by one process and by two that share their gradients over gloo."""
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
RANK=1 python3 train.py 16 1 file_descriptor & other=$!
RANK=0 python3 train.py 16 1 file_descriptor
wait $other || echo "rank 1 ended with status $?"
'''

TORCH = '/usr/lib/python3/dist-packages/torch/__init__.py'

PROGRAMS = [
    Recipe('torch', 'python3 train.py 24 2 file_descriptor', needs=['python3', TORCH], inputs={'train.py': TRAIN}),
    Recipe('torch-files', 'python3 train.py 24 1 file_system', needs=['python3', TORCH], inputs={'train.py': TRAIN}),
    Recipe('torch-ranks', TWO, needs=['python3', TORCH], inputs={'train.py': TRAIN}),
]
