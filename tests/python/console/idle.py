"""The end of a session by idleness. The server ends it, although the page keeps its watches open."""

import re

from playwright.sync_api import expect

from harness import API, run

WATCHES = 5


def open_watches(page):
    """The watches that a page has open, as they come and go."""
    streams = set()
    page.on("request", lambda request: "watch=true" in request.url and streams.add(request))
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: streams.discard(request))
    return streams


def watches_do_not_keep_a_session(bench):
    key = bench.user("idle")
    context = bench.new_context()
    pages = [context.new_page() for _ in range(3)]
    first, _, last = pages
    streams = [open_watches(page) for page in pages]
    # The overview follows three lists, and each list page one.
    bench.use_link(first, bench.link(key))
    for page, path in zip(pages[1:], ("/keys", "/secrets?q=kept")):
        bench.open(page, path)
    [cookie] = [one for one in context.cookies() if one["name"] == "__Host-postern"]
    headers = {"cookie": f"__Host-postern={cookie['value']}", "x-postern-console": "1", "x-postern-background": "1"}
    bench.until(f"{WATCHES} watches", lambda: sum(map(len, streams)) >= WATCHES)
    idle = bench.call("GET", "/auth/session", key=False, headers=headers).json()["status"]["idleSeconds"]
    assert idle < 60, idle
    # The watches deliver events meanwhile.
    bench.key("new", {"user": "idle"})
    expect(pages[1].get_by_text("new", exact=True)).to_be_visible()
    expect(last.get_by_role("dialog", name="Are you still there?")).to_be_visible()
    for page in pages:
        bench.until_login(page)
        expect(page.get_by_text(re.compile("^The session ended: "))).to_be_visible()
    assert bench.call("GET", f"{API}/selves/me", key=False, headers=headers).status == 401
    bench.until("the watches to end", lambda: sum(map(len, streams)) == 0)
    last.locator("input[type=password]").fill(key)
    last.keyboard.press("Enter")
    bench.until_in(last)
    assert last.url == bench.origin + "/ui/secrets?q=kept", last.url
    context.close()


run(watches_do_not_keep_a_session)
