"""Spark with everything that it reads and writes in a server: spark.py ADDRESS WORK [MIB]. Each step is a function `step_…`."""

import operator
import os
import random
import sys
import time
import traceback

from pyspark.ml.clustering import KMeans, KMeansModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession, Window, functions

ADDRESS, WORK = sys.argv[1], sys.argv[2]
# What is sorted; the issue asks for 2 GB.
MIB = int(sys.argv[3]) if len(sys.argv) > 3 else 2048
EVENTS = f"{ADDRESS}/spark-events"
ROW = 100


def session(name, **options):
    """Spark in this process, told the address and nothing else about the store."""
    builder = SparkSession.builder.appName(name).master("local[2]")
    options = {"spark.hadoop.fs.defaultFS": ADDRESS, "spark.hadoop.dfs.replication": "1", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
               "spark.local.dir": f"{WORK}/spark-local", "spark.sql.warehouse.dir": f"{ADDRESS}/warehouse",
               "spark.sql.shuffle.partitions": "8", "spark.driver.memory": "2g", **options}
    for key, value in options.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def store(spark):
    """Hadoop's own client within Spark."""
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    return jvm.org.apache.hadoop.fs.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration()), path


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r:.300}, wanted {wanted!r:.300}")


def numbers(spark, first, last):
    frame = spark.range(first, last).withColumn("part", functions.col("id") % 4)
    return frame.withColumn("word", functions.concat(functions.lit("word "), functions.col("id")))


def summary(spark, path):
    row = spark.read.parquet(path).agg(functions.count("*"), functions.sum("id"), functions.countDistinct("word")).first()
    return tuple(row)


def expected(*ranges):
    ids = [number for one in ranges for number in one]
    return len(ids), sum(ids), len(set(ids))


def step_parquet_write_append_overwrite(spark):
    path = f"{ADDRESS}/parquet"
    numbers(spark, 0, 200_000).write.parquet(path)
    equal(summary(spark, path), expected(range(200_000)), "written")
    numbers(spark, 200_000, 250_000).write.mode("append").parquet(path)
    equal(summary(spark, path), expected(range(250_000)), "appended")
    numbers(spark, 5, 1005).write.mode("overwrite").parquet(path)
    equal(summary(spark, path), expected(range(5, 1005)), "overwritten")
    files, name = store(spark)
    equal(files.exists(name(f"{path}/_SUCCESS")) and not files.exists(name(f"{path}/_temporary")), True, "committed")


def step_partitions(spark):
    path = f"{ADDRESS}/partitions"
    frame = numbers(spark, 0, 100_000)
    frame.write.partitionBy("part").parquet(path)
    one = numbers(spark, 1_000_000, 1_000_400).filter("part = 1")
    one.write.mode("overwrite").parquet(f"{path}/part=1")
    rest = [number for number in range(100_000) if number % 4 != 1]
    equal(summary(spark, path), expected(rest, range(1_000_001, 1_000_400, 4)), "one directory overwritten")
    two = numbers(spark, 2_000_000, 2_000_800).filter("part = 2")
    two.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("part").parquet(path)
    rest = [number for number in rest if number % 4 != 2]
    new = expected(rest, range(1_000_001, 1_000_400, 4), range(2_000_002, 2_000_800, 4))
    equal(summary(spark, path), new, "one part overwritten dynamically")
    two.write.mode("overwrite").partitionBy("part").parquet(path)
    equal(summary(spark, path), expected(range(2_000_002, 2_000_800, 4)), "all overwritten")


def step_sort(spark):
    rows = (MIB << 20) // ROW
    # Keys in no order; what comes with them does not compress.
    key = functions.xxhash64("id")
    padding = functions.concat(*[functions.sha2(functions.concat("id", functions.lit(part)), 256) for part in "ab"])
    frame = spark.range(0, rows, 1, 16).select(key.alias("key"), functions.substring(padding, 1, ROW - 9).alias("padding"))
    frame.write.option("compression", "none").parquet(f"{ADDRESS}/sort/in")
    frame = spark.read.parquet(f"{ADDRESS}/sort/in")
    frame.sort("key").write.option("compression", "none").parquet(f"{ADDRESS}/sort/out")
    wanted = frame.agg(functions.count("*"), functions.sum(functions.hash("key", "padding"))).first()
    ends = []
    back = spark.read.parquet(f"{ADDRESS}/sort/out")
    got = back.agg(functions.count("*"), functions.sum(functions.hash("key", "padding"))).first()
    equal(tuple(got), tuple(wanted), "rows and their sum")
    equal(got[0], rows, "rows")
    files, name = store(spark)
    size = files.getContentSummary(name(f"{ADDRESS}/sort/out")).getLength()
    for status in sorted(s.getPath().toString() for s in files.listStatus(name(f"{ADDRESS}/sort/out")) if s.getLen()):
        part = spark.read.parquet(status)
        placed = part.select("key", functions.monotonically_increasing_id().alias("place"))
        before = functions.lag("key").over(Window.orderBy("place"))
        disorder = placed.select("key", before.alias("before")).filter("key < before").count()
        equal(disorder, 0, f"rows out of order in {status}")
        ends.append(tuple(part.agg(functions.min("key"), functions.max("key")).first()))
    equal(all(one[1] <= two[0] for one, two in zip(ends, ends[1:])), True, "order of the parts")
    files.delete(name(f"{ADDRESS}/sort"), True)
    print(f"    sorted {rows} rows, {size >> 20} MiB")


def step_page_rank(spark):
    chance = random.Random(7)
    edges = sorted({(chance.randrange(500), int(chance.random() ** 2 * 500)) for _ in range(4000)})
    lines = spark.sparkContext.parallelize([f"{one} {two}" for one, two in edges], 4)
    lines.saveAsTextFile(f"{ADDRESS}/rank/in")
    links = spark.sparkContext.textFile(f"{ADDRESS}/rank/in").map(lambda line: tuple(map(int, line.split()))).groupByKey(4).cache()
    ranks = links.mapValues(lambda _: 1.0)
    for _ in range(5):
        given = links.join(ranks).flatMap(lambda one: [(target, one[1][1] / len(one[1][0])) for target in one[1][0]])
        ranks = given.reduceByKey(operator.add, 4).mapValues(lambda sum: 0.15 + 0.85 * sum)
    ranks.map(lambda pair: f"{pair[0]} {pair[1]!r}").saveAsTextFile(f"{ADDRESS}/rank/out")
    got = {}
    for line in spark.sparkContext.textFile(f"{ADDRESS}/rank/out").collect():
        name, rank = line.split()
        got[int(name)] = float(rank)
    wanted = page_ranks(edges)
    equal(sorted(got), sorted(wanted), "pages")
    equal(max(abs(got[page] - wanted[page]) for page in wanted) < 1e-9, True, "ranks")


def page_ranks(edges):
    """The same without Spark."""
    links = {}
    for one, two in edges:
        links.setdefault(one, []).append(two)
    ranks = {page: 1.0 for page in links}
    for _ in range(5):
        sums = {}
        for page, targets in links.items():
            for target in targets if page in ranks else []:
                sums[target] = sums.get(target, 0.0) + ranks[page] / len(targets)
        ranks = {page: 0.15 + 0.85 * sum for page, sum in sums.items()}
    return ranks


def step_k_means(spark):
    chance = random.Random(11)
    centres = [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0)]
    points = [(x + chance.gauss(0, 0.5), y + chance.gauss(0, 0.5)) for x, y in centres for _ in range(2000)]
    spark.createDataFrame(points, ["x", "y"]).write.parquet(f"{ADDRESS}/points")
    frame = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(spark.read.parquet(f"{ADDRESS}/points"))
    KMeans(k=3, seed=1).fit(frame).write().overwrite().save(f"{ADDRESS}/model")
    model = KMeansModel.load(f"{ADDRESS}/model")
    found = sorted((round(float(x)) + 0.0, round(float(y)) + 0.0) for x, y in model.clusterCenters())
    equal(found, sorted(centres), "centres")


def event_log(spark, name):
    """Called when the context has stopped: its log is whole."""
    files, path = store(spark)
    logs = [status.getPath().toString() for status in files.listStatus(path(EVENTS))]
    equal([log.rsplit("/", 1)[1] for log in logs], [name], "event logs")
    kinds = spark.read.json(logs[0]).groupBy("Event").count().collect()
    kinds = {row["Event"]: row["count"] for row in kinds}
    equal((kinds["SparkListenerApplicationStart"], kinds["SparkListenerApplicationEnd"]), (1, 1), "begin and end")
    print(f"    {sum(kinds.values())} events, {kinds['SparkListenerTaskEnd']} tasks")


def attempt(name, step, *arguments):
    begin = time.monotonic()
    try:
        step(*arguments)
        print(f"{name:<32} ok      {time.monotonic() - begin:6.2f} s", flush=True)
        return 0
    except Exception:
        print(f"{name:<32} FAILED  {time.monotonic() - begin:6.2f} s\n{traceback.format_exc()}", flush=True)
        return 1


def main():
    # Workers must be this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    before = session("before")
    files, path = store(before)
    files.mkdirs(path(EVENTS))
    before.stop()
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": EVENTS}
    spark = session("clients", **logged)
    name = spark.sparkContext.applicationId
    steps = [(name, step) for name, step in globals().items() if name.startswith("step_")]
    failed = sum(attempt(name.removeprefix("step_"), step, spark) for name, step in steps)
    spark.stop()
    after = session("after", **{"spark.eventLog.enabled": "false"})
    failed += attempt("event_log", event_log, after, name)
    after.stop()
    print(f"{len(steps) + 1 - failed} steps passed, {failed} failed")
    sys.exit(failed != 0)


main()
