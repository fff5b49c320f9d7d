"""What happens to a session of the console when something changes at the identity provider."""

import time

from harness import API, run
from playwright.sync_api import expect
from provider import Provider

# The provider is asked again each 10 s. A change that takes two of these intervals was missed once.
LIMIT_SECONDS = 2 * 10

ME = f"{API}/selves/me"


def logged_in(bench, user):
    """The provider, and a page of a user who has logged in there."""
    provider, page = Provider(bench), bench.context.new_page()
    page.goto(bench.origin + "/ui/")
    page.get_by_role("link", name="Continue with Corporate login").click()
    provider.log_in(page, user)
    bench.until_in(page)
    return provider, page


def asked_by(page):
    """The status of a request of the page, and the teams of its user."""
    return page.evaluate(
        """(path) => fetch(path, { headers: { 'x-postern-console': '1' } }).then(async (answer) => ({
             status: answer.status,
             teams: ((await answer.json()).status.user?.teams ?? []).map((team) => team.name),
           }))""",
        ME)


def seconds_until(bench, what, condition):
    began = time.monotonic()
    bench.until(what, condition)
    return time.monotonic() - began


def groups_follow_the_provider_and_the_session_stays(bench):
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "shop"}, "spec": {"ssoGroups": ["corp:sellers"]}})
    provider, page = logged_in(bench, "ada")
    assert asked_by(page) == {"status": 200, "teams": []}
    key = page.evaluate("fetch('/auth/session', { headers: { 'x-postern-console': '1' } }).then((one) => one.json())")
    key = bench.ok("GET", f"{API}/ownedaccesskeys/{key['status']['accessKey']}")
    assert key["spec"]["ttl"] == 12 * 3600, "there is a refresh token"
    for groups, teams in [(["sellers"], ["shop"]), ([], []), (["sellers"], ["shop"])]:
        provider.change("ada", groups)
        took = seconds_until(bench, f"the groups {groups}", lambda: asked_by(page)["teams"] == teams)
        print(f"groups {groups} after {took:.1f} s", flush=True)
        assert took < LIMIT_SECONDS, took
    # The session is the same one, and the page was never at a login.
    assert bench.ok("GET", f"{API}/ownedaccesskeys/{key['metadata']['name']}")["metadata"]["uid"] == key["metadata"]["uid"]
    bench.go(page, "/sessions")
    expect(page.get_by_role("row").filter(has_text="This session")).to_be_visible()


def a_logout_at_the_provider_ends_the_session(bench):
    provider, page = logged_in(bench, "bob")
    other = bench.context.new_page()
    other.goto(provider.issuer + "/session/end")
    began = time.monotonic()
    other.get_by_role("button", name="Yes, sign me out").click()
    # The provider has told the server before it shows this.
    other.wait_for_url("**/session/end/success*", wait_until="commit")
    assert asked_by(page)["status"] == 401
    print(f"the session had ended {time.monotonic() - began:.2f} s after the click", flush=True)
    bench.until_login(page)
    expect(page.get_by_text("The session ended")).to_be_visible()


def a_user_whom_the_provider_removes_is_logged_out(bench):
    provider, page = logged_in(bench, "tim")
    provider.change("tim")
    took = seconds_until(bench, "the end of the session", lambda: asked_by(page)["status"] == 401)
    bench.until_login(page)
    print(f"the session of a removed user ended after {took:.1f} s", flush=True)
    assert took < LIMIT_SECONDS, took


def a_login_that_the_user_cancels_says_so(bench):
    provider, page = Provider(bench), bench.context.new_page()
    page.goto(bench.origin + "/ui/")
    page.get_by_role("link", name="Continue with Corporate login").click()
    provider.expect_login(page)
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_text("the provider did not let the user log in")).to_be_visible()
    names = [one["name"] for one in bench.context.cookies(bench.origin)]
    assert not [name for name in names if name.startswith("__Host-postern")], names


run(
    a_login_that_the_user_cancels_says_so,
    groups_follow_the_provider_and_the_session_stays,
    a_logout_at_the_provider_ends_the_session,
    a_user_whom_the_provider_removes_is_logged_out,
)
