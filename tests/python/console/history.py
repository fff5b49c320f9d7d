"""A list whose server no longer has the history that the list would resume from. The server of this test keeps seconds."""

from harness import run
from open_list import SECRETS, OpenList, fill


def a_lost_history_keeps_the_place(bench):
    fill(bench)
    opened = OpenList(bench)
    version = bench.ok("GET", f"{SECRETS}?limit=1")["metadata"]["resourceVersion"]
    opened.relay.cut()
    opened.change("history")

    def is_lost():
        reply = bench.call("GET", f"{SECRETS}?watch=true&resourceVersion={version}&timeoutSeconds=1")
        return reply.status == 410 or b'"code":410' in reply.body

    bench.until("the history to be lost", is_lost)
    opened.relay.to(bench.origin)
    opened.has_every_row("history")
    assert opened.lists > 0, "the list is read again"
    opened.close()


run(a_lost_history_keeps_the_place)
