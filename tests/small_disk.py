"""A real file system with little space, in a mount namespace of a child process: nobody else sees it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

CLONE_NEWNS = 0x00020000
SIZE = "4m"


def enter_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)


def mount_small(path: Path, size: str = SIZE) -> None:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(path)]
    subprocess.run(command, check=True, capture_output=True)


class BreakingVolume:
    """An ext4 file system in a file, which the kernel makes read-only at once, as it does when a disk reports an error: also for files that are
    open for writing. Afterwards it takes a look at the file system and a new mount, as from an administrator, until it can be written."""

    def __init__(self, image: Path, at: Path, megabytes: int = 64) -> None:
        self.at, self._image = at, image
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        at.mkdir(parents=True, exist_ok=True)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.at))
        self.at.chmod(0o700)

    def breaks(self) -> None:
        device = _run("findmnt", "-n", "-o", "SOURCE", str(self.at)).strip()
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("a test asked for it")
        try:
            (self.at / "tried").touch()
        except OSError:
            return
        raise AssertionError("the volume can still be written")

    def is_mended(self) -> None:
        """Nobody uses it any more."""
        _run("umount", str(self.at))
        subprocess.run(["e2fsck", "-f", "-y", str(self._image)], check=False, capture_output=True)
        self._mount()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def try_breaking_volume(report: Path) -> None:
    try:
        enter_namespace()
        BreakingVolume(report.parent / "tried.img", report.parent / "tried", 8).breaks()
        report.write_text("")
    except Exception as error:
        report.write_text(f"{type(error).__name__}: {error}")


def try_namespace(report: Path) -> None:
    try:
        enter_namespace()
        mount_small(report.parent / "tried")
        report.write_text("")
    except Exception as error:
        report.write_text(f"{type(error).__name__}: {error}")
