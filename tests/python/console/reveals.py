"""Values of secrets: each is read by one request, which the audit log names, and leaves nothing behind."""

import json

from playwright.sync_api import expect

from harness import API, run

CANARY = "canary-6d1f0b"


def reads(bench, name):
    """The audit records that read a value of a secret: the object, one entry, or a list with objects."""
    found = []
    for one in bench.records():
        of = one.get("objectRef", {})
        if of.get("resource") != "sharedsecrets" or one["verb"] not in ("get", "list", "watch"):
            continue
        if of.get("name") in (name, None) and one["responseStatus"]["code"] == 200:
            found.append((one["verb"], of.get("subresource", ""), one["requestURI"],
                          one.get("annotations", {}).get("platform.sh/entry")))
    return found


def of_values(bench, name):
    """Only those that return values: tables and metadata have none."""
    return [one for one in reads(bench, name) if one[1] == "entry" or (one[0] == "get" and one[1] == "")]


def traces(page):
    """Everywhere that a value could be left."""
    return json.dumps([
        page.content(),
        page.url,
        page.evaluate(
            """async () => {
              const cached = [];
              for (const name of await caches.keys())
                for (const one of await (await caches.open(name)).keys()) cached.push(one.url);
              const bases = await indexedDB.databases();
              return JSON.stringify([{ ...localStorage }, { ...sessionStorage }, cached, bases, history.state,
                performance.getEntriesByType('resource').map((one) => one.name)]);
            }"""
        ),
    ])


def a_value_is_read_when_it_is_shown_and_not_before(bench):
    bench.secret("db", {"password": CANARY, "user": "ada"})
    page = bench.logged_in()
    bench.open(page, "/secrets")
    expect(page.get_by_text("db", exact=True).first).to_be_visible()
    bench.open(page, "/secrets/platform/db")
    expect(page.get_by_text("password", exact=True).first).to_be_visible()
    assert of_values(bench, "db") == [], of_values(bench, "db")
    entry = page.get_by_role("listitem").filter(has_text="password")
    for number in (1, 2):
        entry.get_by_role("button", name="Reveal").click()
        expect(page.get_by_text(CANARY)).to_be_visible()
        found = bench.until("the record", lambda: len(of_values(bench, "db")) == number and of_values(bench, "db"))
        assert {one[3] for one in found} == {"password"}, found
        page.keyboard.press("Escape")
        expect(page.get_by_text(CANARY)).to_have_count(0)
        assert CANARY not in traces(page)
    # A page that is left forgets the value, also on the way back.
    entry.get_by_role("button", name="Reveal").click()
    expect(page.get_by_text(CANARY)).to_be_visible()
    page.get_by_role("navigation").first.get_by_role("link", name="Projects").click()
    page.wait_for_url("**/ui/projects")
    # The address changes before the page does.
    expect(page.get_by_role("heading", level=1)).to_contain_text("Projects")
    assert CANARY not in traces(page)
    page.go_back()
    expect(page.get_by_text("password", exact=True).first).to_be_visible()
    assert CANARY not in traces(page)
    assert len(of_values(bench, "db")) == 3, of_values(bench, "db")


def a_value_is_hidden_by_itself(bench):
    bench.secret("timed", {"password": CANARY})
    page = bench.logged_in()
    page.clock.install()
    bench.open(page, "/secrets/platform/timed")
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_text(CANARY)).to_be_visible()
    page.clock.run_for(31_000)
    expect(page.get_by_text(CANARY)).to_have_count(0)
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_text(CANARY)).to_be_visible()
    page.evaluate("dispatchEvent(new Event('blur'))")
    expect(page.get_by_text(CANARY)).to_have_count(0)


def a_logout_leaves_nothing(bench):
    bench.secret("gone", {"password": CANARY})
    page = bench.logged_in()
    bench.open(page, "/secrets/platform/gone")
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_text(CANARY)).to_be_visible()
    [cookie] = [one for one in bench.context.cookies() if one["name"] == "__Host-postern"]
    button = page.get_by_role("button", name="Log out")
    if not button.is_visible():
        page.get_by_role("button", name="Account").click()
    button.click()
    bench.until_login(page)
    bench.until("the cookie to go", lambda: not bench.context.cookies())
    left = traces(page)
    assert CANARY not in left and cookie["value"] not in left
    page.go_back()
    assert CANARY not in traces(page)


run(
    a_value_is_read_when_it_is_shown_and_not_before,
    a_value_is_hidden_by_itself,
    a_logout_leaves_nothing,
)
