"""Become another user, then another program: `demote.py UID GID THROUGH_CLOSED COMMAND…`.

PostgreSQL refuses to run as root. A checkout or a data directory may lie below a directory that only root may enter
(/root, a temporary directory); with THROUGH_CLOSED=1 the program keeps the one capability that lets it pass
(CAP_DAC_OVERRIDE: it already ran with it as root). Run as a script, so that it starts fast and imports nothing of ours.
"""

import ctypes
import os
import struct
import sys

_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


def demote(uid: int, gid: int, *, through_closed_directories: bool) -> None:
    """Take on the user and group for good. OSError when this process may not."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    if through_closed_directories:
        check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if through_closed_directories:
        bit = 1 << _CAP_DAC_OVERRIDE
        header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
        data = ctypes.create_string_buffer(struct.pack("6I", bit, bit, bit, 0, 0, 0))
        check(libc.capset(header, data))
        check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0))


if __name__ == "__main__":
    user, group, through_closed, *command = sys.argv[1:]
    demote(int(user), int(group), through_closed_directories=through_closed == "1")
    os.umask(0o077)
    os.execv(command[0], command)
