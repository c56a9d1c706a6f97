"""hdfs-native, fsspec, pandas and pyarrow against a server: native.py ADDRESS WORK. No JVM. Each step is a function `step_…`."""

import hashlib
import os
import sys
import time
import traceback

import fsspec
import hdfs_native
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

ADDRESS, WORK = sys.argv[1], sys.argv[2]
BIG = 300 << 20
NOISE = os.urandom(1 << 20)


def store():
    """A client with nothing set but the address."""
    return hdfs_native.Client(ADDRESS)


def files():
    """The same through fsspec, made anew: fsspec keeps instances."""
    return fsspec.filesystem("hdfs", skip_instance_cache=True, **host())


def host():
    name, port = ADDRESS.removeprefix("hdfs://").split(":")
    return {"host": name, "port": int(port)}


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r:.300}, wanted {wanted!r:.300}")


def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return error
    raise AssertionError(f"{call.__name__}{arguments} was not refused")


def step_write_read_append():
    client = store()
    client.mkdirs("/native/deep", create_parent=True)
    with client.create("/native/deep/file") as writer:
        writer.write(b"one")
    with client.read("/native/deep/file") as reader:
        equal(reader.read(), b"one")
    for count in range(3):
        with client.append("/native/deep/file") as writer:
            writer.write(b"+%d" % count)
    with client.read("/native/deep/file") as reader:
        equal(reader.read(), b"one+0+1+2")
    with client.create("/native/deep/empty"):
        pass
    with client.read("/native/deep/empty") as reader:
        equal(reader.read(), b"")
    refused(client.create, "/native/deep/file")
    with client.create("/native/deep/file", hdfs_native.WriteOptions(overwrite=True)) as writer:
        writer.write(b"two")
    with client.read("/native/deep/file") as reader:
        equal(reader.read(), b"two")
    refused(client.read, "/native/nothing")


def step_names():
    client = store()
    with client.create("/native/names") as writer:
        writer.write(NOISE)
    status = client.get_file_info("/native/names")
    equal((status.length, status.isdir, status.path), (len(NOISE), False, "/native/names"))
    client.set_permission("/native/names", 0o640)
    client.set_owner("/native/names", "alice", "staff")
    client.set_times("/native/names", 1500000000000, 1600000000000)
    client.set_replication("/native/names", 2)
    status = client.get_file_info("/native/names")
    equal((status.permission, status.owner, status.group), (0o640, "alice", "staff"))
    equal((status.modification_time, status.access_time), (1500000000000, 1600000000000))
    client.mkdirs("/native/many")
    for count in range(30):
        client.create(f"/native/many/{count:02}").close()
    equal([entry.path for entry in client.list_status("/native/many")], [f"/native/many/{n:02}" for n in range(30)])
    equal(len(client.glob_status("/native/many/1*")), 10)
    client.rename("/native/many", "/native/moved")
    refused(client.get_file_info, "/native/many")
    refused(client.rename, "/native/names", "/native/moved/00")
    client.rename("/native/names", "/native/moved/00", overwrite=True)
    equal(client.get_file_info("/native/moved/00").length, len(NOISE))
    summary = client.get_content_summary("/native/moved")
    equal((summary.file_count, summary.directory_count, summary.length), (30, 1, len(NOISE)))
    refused(client.delete, "/native/moved")
    equal(client.delete("/native/moved", recursive=True), True)
    equal(client.delete("/native/moved", recursive=True), False)
    equal(sorted(entry.path for entry in client.list_status("/native", recursive=True)),
          ["/native/deep", "/native/deep/empty", "/native/deep/file"])


def step_acls():
    client = store()
    client.create("/native/acl").close()
    entries = [hdfs_native.AclEntry("user", "access", "rw-", "bob")]
    client.modify_acl_entries("/native/acl", entries)
    equal([(e.type, e.name, e.permissions) for e in client.get_acl_status("/native/acl").entries][0], ("user", "bob", "rw-"))
    client.remove_acl("/native/acl")
    equal(client.get_acl_status("/native/acl").entries, [])


def step_partial_reads():
    client = store()
    content = NOISE * 3 + b"tail"
    with client.create("/native/partial", hdfs_native.WriteOptions(block_size=1 << 20)) as writer:
        writer.write(content)
    with client.read("/native/partial") as reader:
        for start, length in [(0, 1), (511, 2), (4096, 100_000), ((1 << 20) - 3, 7), (len(content) - 5, 5), (5, 2 << 20)]:
            equal(reader.read_range(start, length) == content[start:start + length], True, f"{length} bytes at {start}")
        reader.seek(len(content) - 4)
        equal(reader.read(), b"tail")


def step_fsspec():
    system = files()
    system.makedirs("/fsspec/a/b")
    with system.open("/fsspec/a/b/text", "wb") as writer:
        writer.write(b"text")
    with system.open("/fsspec/a/b/text", "ab") as writer:
        writer.write(b" and more")
    equal(system.cat("/fsspec/a/b/text"), b"text and more")
    equal(system.cat_file("/fsspec/a/b/text", start=5, end=8), b"and")
    equal(system.info("/fsspec/a/b/text")["size"], 13)
    equal((system.exists("/fsspec/a"), system.isdir("/fsspec/a"), system.exists("/fsspec/x")), (True, True, False))
    system.mv("/fsspec/a/b/text", "/fsspec/a/moved")
    # Not `cp_file`: that of hdfs-native 0.14.7 asks for a relative name, which HDFS refuses too.
    equal([name.split("/fsspec/")[1] for name in system.find("/fsspec")], ["a/moved"])
    system.rm("/fsspec", recursive=True)
    equal(system.exists("/fsspec"), False)


def table():
    return pandas.DataFrame({"number": range(200_000), "word": [f"word {n % 977}" for n in range(200_000)],
                             "part": [n % 4 for n in range(200_000)]})


def step_pandas():
    frame = table()
    # With an address alone pandas asks pyarrow for libhdfs, which is a JVM.
    named = {"path": "/pandas.parquet", "filesystem": files()}
    frame.to_parquet(**named)
    equal(pandas.read_parquet(**named).equals(frame), True, "parquet")
    equal(pandas.read_parquet(**named, columns=["part"])["part"].sum(), frame["part"].sum(), "a column")
    frame.head(1000).to_csv(f"{ADDRESS}/pandas.csv", index=False)
    equal(pandas.read_csv(f"{ADDRESS}/pandas.csv").equals(frame.head(1000)), True, "csv")


def step_pyarrow():
    system = files()
    whole = pyarrow.Table.from_pandas(table())
    pyarrow.parquet.write_table(whole, "/arrow.parquet", filesystem=system, row_group_size=20_000)
    back = pyarrow.parquet.read_table("/arrow.parquet", filesystem=system)
    equal(back.equals(whole), True, "table")
    some = pyarrow.parquet.read_table("/arrow.parquet", filesystem=system, filters=[("number", ">=", 199_990)])
    equal(some.num_rows, 10)
    pyarrow.dataset.write_dataset(whole, "/arrow", filesystem=system, format="parquet", partitioning=["part"])
    data = pyarrow.dataset.dataset("/arrow", filesystem=system, format="parquet", partitioning=["part"])
    equal((len(data.files), data.count_rows()), (4, 200_000))


def step_big_file():
    client = store()
    wrote, read = hashlib.sha256(), hashlib.sha256()
    begin = time.monotonic()
    with client.create("/native/big") as writer:
        for count in range(BIG >> 20):
            piece = count.to_bytes(8, "little") + NOISE[8:]
            wrote.update(piece)
            writer.write(piece)
    middle = time.monotonic()
    equal(client.get_file_info("/native/big").length, BIG)
    with client.read("/native/big") as reader:
        while piece := reader.read(4 << 20):
            read.update(piece)
    equal(read.hexdigest(), wrote.hexdigest(), "bytes of the big file")
    files().get_file("/native/big", f"{WORK}/big")
    with open(f"{WORK}/big", "rb") as copy:
        equal(hashlib.file_digest(copy, "sha256").hexdigest(), wrote.hexdigest(), "the copy")
    os.remove(f"{WORK}/big")
    print(f"    wrote {BIG / (middle - begin) / 1e6:.0f} MB/s with SHA-256")


def main():
    failed = 0
    steps = [(name, step) for name, step in globals().items() if name.startswith("step_")]
    for name, step in steps:
        begin = time.monotonic()
        try:
            step()
            print(f"{name.removeprefix('step_'):<20} ok      {time.monotonic() - begin:6.2f} s", flush=True)
        except BaseException:  # A panic of the Rust client is no Exception.
            failed += 1
            print(f"{name.removeprefix('step_'):<20} FAILED  {time.monotonic() - begin:6.2f} s\n{traceback.format_exc()}", flush=True)
    print(f"{len(steps) - failed} steps passed, {failed} failed")
    sys.exit(failed != 0)


main()
