"""The program of every process: `python -m trainer.task --job-dir=job --epochs=5`.

All processes train the same model, each on its share of every batch, and print the same loss. Rank 0 keeps a checkpoint
per epoch, and a job that starts again goes on from there. If one process gets SIGTERM, all of them end after the
epoch and its checkpoint. A process that is alone trains on all images.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from trainer import digits

signalled: list[bool] = []


def main() -> None:
    """Joins the processes that the environment names, and trains."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: signalled.append(True))
    device = _join()
    rank, world = distributed.get_rank(), distributed.get_world_size()
    print(f"rank {rank} of {world} on {device}", flush=True)

    torch.manual_seed(1)  # every process begins with the same weights
    model = _build().to(device)
    trained = DistributedDataParallel(model)  # averages the gradients of all processes
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    shares = Subset(digits.make(options.images), range(rank, options.images, world))
    batches = DataLoader(shares, batch_size=options.batch_size // world, num_workers=options.loaders)

    folder = Path(options.job_dir.replace("gs://", "/gcs/", 1))  # where Vertex AI mounts buckets
    for epoch in range(_restore(folder, model, optimizer, device), options.epochs):
        loss = _train(trained, optimizer, batches, device)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)
            state = {"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            _save(state, folder / "checkpoints" / f"epoch-{epoch + 1:04}.pt")
        if _is_preempted(device):
            _leave(128 + signal.SIGTERM)  # not 0, after which some services start no new replica
    if rank == 0:
        _save(model.state_dict(), folder / "model.pt")
    _leave()


def _join() -> torch.device:
    """Joins the other processes, which the variables of torchrun or of imgtool describe; returns this one's device."""
    os.environ.setdefault("MASTER_ADDR", "localhost")
    for name, alone in (("MASTER_PORT", "0"), ("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, alone)
    if not torch.cuda.is_available():
        distributed.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl")
    return device


def _is_preempted(device: torch.device) -> bool:
    """Tells whether any process got SIGTERM. All processes get the same answer, so that none waits for another one."""
    count = torch.tensor(len(signalled), device=device)
    distributed.all_reduce(count)
    return count.item() > 0


def _leave(code: int = 0) -> None:
    """Ends this process when all have come so far. Threads of gloo (torch 2.13) sometimes abort one that returns."""
    distributed.barrier()
    if distributed.get_backend() == "gloo":
        os._exit(code)  # everything is written, and every line was flushed
    distributed.destroy_process_group()
    sys.exit(code)


def _build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 64, kernel_size=5),  # a digit has five rows
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),  # wherever it is
        nn.Flatten(),
        nn.Linear(64, digits.CLASSES),
    )


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: DataLoader[tuple[torch.Tensor, ...]],
    device: torch.device,
) -> float:
    """Trains for one epoch, and returns the mean loss of all processes."""
    total = torch.zeros((), device=device)
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total += loss.detach()
    distributed.all_reduce(total)
    return total.item() / len(batches) / distributed.get_world_size()


def _restore(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Loads the newest checkpoint, if there is one; returns the number of epochs that it contains."""
    saved = sorted(folder.glob("checkpoints/epoch-*.pt"))
    if not saved:
        return 0
    state = torch.load(saved[-1], map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def _save(state: dict[str, object], path: Path) -> None:
    """Writes the file under another name first, so that no reader finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    torch.save(state, unfinished)
    unfinished.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer.task", description="Trains a classifier of digits.")
    parser.add_argument("--job-dir", default="job", help="where the checkpoints and the model go")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the images")
    parser.add_argument("--images", type=int, default=6144, help="how many images, of all processes together")
    parser.add_argument("--batch-size", type=int, default=96, help="images per step, of all processes together")
    parser.add_argument("--loaders", type=int, default=0, help="processes that load images, per process that trains")
    return parser


if __name__ == "__main__":
    main()
