"""The end of a session, as an open tab shows it."""

from datetime import UTC, datetime

from harness import API, run
from open_tab import begun, is_over


def session_of(bench, user):
    """The name of the key of the user's only session."""
    listed = bench.ok("GET", f"{API}/ownedaccesskeys?labelSelector=platform.sh/session=console")
    [name] = [one["metadata"]["name"] for one in listed["items"] if one["spec"].get("user") == user]
    return name


def a_session_that_is_ended_elsewhere(bench):
    key = bench.user("ended")
    page, cookie = begun(bench, key)
    bench.ok("DELETE", f"{API}/ownedaccesskeys/{session_of(bench, 'ended')}")
    is_over(bench, page, cookie, key)


def a_user_who_is_disabled(bench):
    key = bench.user("disabled")
    page, cookie = begun(bench, key)
    user = f"{API}/users/disabled"
    bench.ok("PATCH", user, {"spec": {"disabled": True}})
    bench.until_login(page)
    bench.ok("PATCH", user, {"spec": {"disabled": False}})
    # The session is valid again, since it was not deleted. The tab does not know that, and logs in.
    page.locator("input[type=password]").fill(key)
    page.keyboard.press("Enter")
    bench.until_in(page)
    assert page.url == bench.origin + "/ui/secrets?q=kept", page.url
    page.context.close()


def a_key_that_is_disabled(bench):
    key = bench.user("keyless")
    page, cookie = begun(bench, key)
    other = bench.key("keyless-other", {"user": "keyless"})
    bench.ok("PATCH", f"{API}/ownedaccesskeys/keyless-key", {"spec": {"disabled": True}})
    is_over(bench, page, cookie, other)


def a_key_that_expires(bench):
    bench.user("brief")
    brief = bench.key("brief-short", {"user": "brief"})
    other = bench.key("brief-other", {"user": "brief"})
    page, cookie = begun(bench, brief)
    # It counts from the creation, and ends only after the page is open.
    created = bench.ok("GET", f"{API}/ownedaccesskeys/brief-short")["metadata"]["creationTimestamp"]
    age = datetime.now(UTC) - datetime.fromisoformat(created)
    ttl = int(age.total_seconds()) + 4
    bench.ok("PATCH", f"{API}/ownedaccesskeys/brief-short", {"spec": {"ttl": ttl}})
    is_over(bench, page, cookie, other)


run(
    a_session_that_is_ended_elsewhere,
    a_user_who_is_disabled,
    a_key_that_is_disabled,
    a_key_that_expires,
)
