"""Files and folders that may be damaged, hostile, or on a network: bounded reads, whole writes, and where the cache is.

    reading    regular files within bounds, JSON
    writing    whole or not at all, never through a link
    folders    what lies in a folder, whether it can be written
    retrying   calls that a network file system refuses for a moment

What is wrong with a file is a `FileError`, one sentence with the path. Imports neither torch nor numpy.
"""

from slotbench.files.folders import (
    cache_home,
    check_own_folder,
    check_writable,
    fsync_folder,
    is_inside,
    own_file,
    regular_files,
    remove_partials,
    why_unwritable,
)
from slotbench.files.reading import (
    RECORD_LIMIT,
    check_regular,
    dump_json,
    number,
    open_regular,
    parse_json,
    plain,
    read_bytes,
    read_json,
    read_json_object,
    read_json_object_or_none,
    read_text,
)
from slotbench.files.retrying import TRANSIENT, link_file, make_folder, persist, remove_file, replace_file
from slotbench.files.writing import (
    append_whole_line,
    cut_torn_line,
    open_atomically,
    open_own,
    open_to_append,
    write_anew,
    write_atomically,
)

__all__ = [
    "RECORD_LIMIT",
    "TRANSIENT",
    "append_whole_line",
    "cache_home",
    "check_own_folder",
    "check_regular",
    "check_writable",
    "cut_torn_line",
    "dump_json",
    "fsync_folder",
    "is_inside",
    "link_file",
    "make_folder",
    "number",
    "open_atomically",
    "open_own",
    "open_regular",
    "open_to_append",
    "own_file",
    "parse_json",
    "persist",
    "plain",
    "read_bytes",
    "read_json",
    "read_json_object",
    "read_json_object_or_none",
    "read_text",
    "regular_files",
    "remove_file",
    "remove_partials",
    "replace_file",
    "why_unwritable",
    "write_anew",
    "write_atomically",
]
