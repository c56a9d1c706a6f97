#!/bin/sh
# Makes a store with a program of an earlier commit, for the test `older`: make.sh PROGRAM DIRECTORY, where PROGRAM is `stormwell` as that
# commit builds it, and DIRECTORY does not exist. The store ends by kill -9, with a file open and a bag half done.
# Then `STORMWELL_OLD_STORE=DIRECTORY cargo test --test cli older` puts it into the image that the test reads.
set -eu
program=$1
mkdir "$2"
cd "$2"
"$program" serve --data data:ssd:128M --listen 127.0.0.1:0 --console off --hdfs off 2>log &
server=$!
for _ in $(seq 600); do
    grep -q "serving on" log && break
    sleep 0.1
done
export STORMWELL_AT=$(sed -n 's/^stormwell: serving on //p' log)
run() { "$program" --quiet "$@"; }

# Bytes that anybody can make again: numbers, one a line.
run mkdir -p /d/small /packed /limited
for name in a b c; do seq 100 | sed "s/^/$name/" > "$name"; done
seq 8000 > numbers
run put numbers /d/numbers
run put a b c /d/small
mkdir many && for name in $(seq 40); do seq "$name" > "many/$name"; done
run put many /packed
run policy set /packed --compression zstd
run put numbers /packed/compressed

# Joined to another, cut, replaced, moved, deleted.
run put a /d/joined
run put b /d/second
run concat /d/joined /d/second
seq 10000 | run put - /d/cut
run truncate -s 30000 /d/cut
run put b /d/replaced
run put --overwrite c /d/replaced
run put a /d/moves && run mv /d/moves /d/moved
run put a /d/gone && run rm /d/gone

# What is kept with names.
run xattr set /d/numbers user.schema v7
run chown ada:staff /d/small
run chmod 640 /d/small/a
run quota set /limited --names 3 --bytes 1M
run put a /limited/one

# A bag of which some chunks were acknowledged, and one that retains, in its second pass.
run bag create work
seq 2000 | run bag push work --lines --chunk 1024
# What it ends with 0 for is acknowledged, and is in `handled`.
run bag pull work --no-wait --exec 'cat > chunk && test "$(head -1 chunk)" -lt 1000 && cat chunk >> handled' >pulled 2>&1 || true
run bag create kept --retain
seq 500 | run bag push kept --lines --chunk 256
run bag pull kept --no-wait >/dev/null
run bag rewind kept

# A file that is being written when everything ends.
(seq 5000; sleep 60) | run put - /d/open 2>/dev/null &
for _ in $(seq 600); do
    run stat /d/open >/dev/null 2>&1 && break
    sleep 0.1
done
kill -9 "$server"
wait "$server" 2>/dev/null || true
rm -rf many a b c numbers log pulled chunk data/chunks/lock data/meta/lock
