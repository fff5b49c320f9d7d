"""A logout, in the tab where it happens and in others. It has a server of its own: requests for logins are limited."""

from harness import run
from open_tab import begun, is_over, log_out


def a_logout_in_one_tab_is_seen_in_the_other(bench):
    key = bench.user("twice")
    page, cookie = begun(bench, key)
    other = page.context.new_page()
    bench.open(other, "/secrets")
    log_out(other)
    bench.until_login(other)
    # A watch may tell the tab before the response to the logout removes the cookie.
    bench.until("the cookie to go", lambda: not page.context.cookies())
    is_over(bench, page, cookie, key)


def a_logout_of_an_earlier_session_ends_no_later_one(bench):
    page, _ = begun(bench, bench.user("late"))
    other = page.context.new_page()
    bench.open(other, "/secrets")
    channel = "new BroadcastChannel('postern-session')"
    # The channel of the page itself is older, so it hears the message first.
    page.evaluate(f"() => {{ window.heard = new Promise((done) => ({channel}.onmessage = () => done(true))); }}")
    other.evaluate(f"() => {channel}.postMessage({{ type: 'logout', session: 'earlier' }})")
    assert page.evaluate("() => window.heard")
    bench.until_in(page)
    page.context.close()


run(a_logout_in_one_tab_is_seen_in_the_other, a_logout_of_an_earlier_session_ends_no_later_one)
