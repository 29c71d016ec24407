"""A worker of Faust that counts words: python faust_worker.py BROKER DATADIR worker ...

It prints a line for each thing that the tests wait for.
"""

import os
import sys

import faust

broker, datadir = sys.argv[1:3]
del sys.argv[1:3]

app = faust.App(
    "words",
    broker=f"kafka://{broker}",
    store="lsmkv://",
    datadir=datadir,
    topic_partitions=4,
    # The mock broker cannot create topics.
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
    stream_wait_empty=False,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    consumer_auto_offset_reset="earliest",
)


def say(*words):
    os.write(1, f"## {' '.join(map(str, words))}\n".encode())  # Faust turns what is printed into log lines


async def on_change(event):
    say("replayed", event.message.partition, event.message.offset)


words = app.topic("words", key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")
counts = app.Table("counts", key_type=bytes, value_type=int, default=int, partitions=4, on_changelog_event=on_change)


@app.agent(words)
async def count(stream):
    async for event in stream.events():
        if event.value == b"forget":
            counts.pop(event.key)
        elif event.value.startswith(b"die"):
            counts[event.key] += 1
            marker = os.path.join(datadir, event.value.decode())
            if not os.path.exists(marker):  # the event is repeated after the restart
                open(marker, "w").close()
                os.kill(os.getpid(), 9)
        elif event.value == b"show":
            say("shown", event.key.decode(), counts.get(event.key))
        elif event.value == b"all":
            say("all", *sorted(f"{key.decode()}={value}" for key, value in counts.items()))
        else:
            counts[event.key] += 1


@app.on_rebalance_complete.connect
async def ready(*_, **__):
    say("rebalanced")


real = counts.data.set_persisted_offset


def persisted(tp, offset):
    real(tp, offset)
    say("persisted", tp.partition, offset)


counts.data.set_persisted_offset = persisted

if __name__ == "__main__":
    app.main()
