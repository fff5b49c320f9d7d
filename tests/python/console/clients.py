"""Writers that keep their connections, for checks that need many writes."""

import http.client
import json
import ssl
import threading
import time


class Writer:
    """One connection to the server, as the administrator."""

    def __init__(self, bench):
        context = ssl.create_default_context(cadata=bench.config["authority"])
        self.connection = http.client.HTTPSConnection(bench.host, context=context, timeout=60)
        self.headers = {"authorization": "Bearer " + bench.config["key"]}

    def send(self, method, path, body):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self.connection.request(method, path, json.dumps(body), {**self.headers, "content-type": kind})
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text[:500]}"


def in_parallel(bench, requests, count=8):
    """Sends requests over several connections."""
    failed, lock, left = [], threading.Lock(), iter(requests)

    def work():
        try:
            writer = Writer(bench)
            while True:
                with lock:
                    one = next(left, None)
                if one is None or failed:
                    return
                writer.send(*one)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


class Load:
    """Writes at a rate until it is left. `rate` is then what was reached."""

    def __init__(self, bench, per_second, make, count=4):
        self.bench, self.pause, self.make = bench, count / per_second, make
        self.threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]
        self.ended, self.sent, self.failed, self.rate = threading.Event(), 0, [], 0
        self.lock = threading.Lock()

    def __enter__(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        self.rate = self.sent / (time.monotonic() - self.began)
        if self.failed:
            raise self.failed[0]

    def _work(self, number):
        try:
            writer, turn, due = Writer(self.bench), 0, time.monotonic()
            while not self.ended.wait(max(0, due - time.monotonic())):
                writer.send(*self.make(number, turn))
                turn, due = turn + 1, due + self.pause
                with self.lock:
                    self.sent += 1
        except BaseException as error:
            self.failed.append(error)
