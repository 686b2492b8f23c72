"""Files of a data folder that are no store: keys, secrets, certificates, claims.

`disk` has how any file is opened, replaced and synced, and the errors of that.
"""

from replica.io.files import keys
from replica.io.files.certificate import TLS_NAME, CertificateFile
from replica.io.files.claims import Claims
from replica.io.files.disk import (
    DISK_ERRORS,
    FILE_MODE,
    create,
    file_at,
    make_folder,
    open_regular,
    read_regular,
    replacing,
    store_error,
    sync_folder,
    typed_errors,
)
from replica.io.files.key_refusals import KeyFileGone, SecretInvalid
from replica.io.files.keys import load_or_begin, load_or_create, load_or_create_secret

__all__ = [
    "DISK_ERRORS",
    "FILE_MODE",
    "TLS_NAME",
    "CertificateFile",
    "Claims",
    "KeyFileGone",
    "SecretInvalid",
    "create",
    "file_at",
    "keys",
    "load_or_begin",
    "load_or_create",
    "load_or_create_secret",
    "make_folder",
    "open_regular",
    "read_regular",
    "replacing",
    "store_error",
    "sync_folder",
    "typed_errors",
]
