"""The login, the first pages, and the policy of the console."""

from playwright.sync_api import expect

from harness import run


def a_link_logs_in_once_and_leaves_no_code_behind(bench):
    bench.secret("db", {"password": "hunter2", "user": "ada"})
    link = bench.link()
    page = bench.context.new_page()
    page.goto(link)
    expect(page.get_by_text("This link logs you in as")).to_be_visible()
    bench.axe(page, "a login link")
    assert not bench.context.cookies(), "nothing happens before the person has answered"
    page.get_by_role("button", name="Log in with the link").click()
    bench.until_in(page)
    cookies = bench.context.cookies()
    [cookie] = [one for one in cookies if one["name"] == "__Host-postern"]
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["path"], cookie["expires"]) == (
        True, True, "Strict", "/", -1), cookie
    code = link.split("code=")[1]
    storage = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert code not in storage and cookie["value"] not in storage, storage
    bench.open(page, "/secrets")
    expect(page.get_by_text("db", exact=True).first).to_be_visible()
    page.reload()
    expect(page.get_by_text("db", exact=True).first).to_be_visible()
    # The same link in another browser.
    other = bench.new_context().new_page()
    other.goto(link)
    expect(other.get_by_text("This link was used, has expired, or is not of this server.")).to_be_visible()
    bench.axe(other, "a spent link")
    expect(other.get_by_text("access key")).to_have_count(0)
    other.get_by_role("button", name="Go to the login page").click()
    bench.until_login(other)
    assert not other.context.cookies(), other.context.cookies()
    other.context.close()


def a_link_of_another_person_is_refused(bench):
    link = bench.link(bench.user("mallory"))
    context = bench.new_context()
    page = context.new_page()
    page.goto(link)
    expect(page.get_by_text("mallory", exact=True)).to_be_visible()
    page.get_by_role("button", name="Do not log in").click()
    bench.until_login(page)
    assert not context.cookies(), context.cookies()
    # In a session, the page names both users.
    bench.logged_in(bench.user("linked"), context)
    other = context.new_page()
    other.goto(link)
    expect(other.get_by_text("mallory", exact=True)).to_be_visible()
    expect(other.get_by_text("linked", exact=True)).to_be_visible()
    other.get_by_role("button", name="Keep this session").click()
    bench.until_in(other)
    context.close()


def a_key_logs_in(bench):
    ada = bench.user("ada")
    page = bench.context.new_page()
    page.goto(bench.origin + "/")
    bench.until_login(page)
    bench.axe(page, "login")
    page.locator("input[type=password]").fill(ada)
    page.keyboard.press("Enter")
    bench.until_in(page)
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert ada not in stored and ada not in page.content()


def the_pages_are_accessible(bench):
    page = bench.logged_in()
    for path in ["/", "/secrets"]:
        bench.open(page, path)
        bench.axe(page, path)
    page.emulate_media(color_scheme="dark")
    bench.axe(page, "secrets, dark")


def text_does_not_become_html(bench):
    page = bench.logged_in()
    assert bench.take_violations() == [], "the console itself"
    refused = page.evaluate(
        """() => {
          try { document.body.innerHTML = '<img src=x onerror="planted = 1">'; return 'taken'; }
          catch (error) { return error.name; }
        }"""
    )
    assert refused == "TypeError", refused
    # Attributes, URLs and sources of scripts are closed as well. A timer runs as a script of the page does; what the test
    # evaluates itself may use eval.
    page.evaluate(
        """() => new Promise((done) => setTimeout(() => {
          for (const make of [
            () => { document.createElement('script').text = 'planted = 2'; },
            () => { const one = document.createElement('script'); one.src = 'data:text/javascript,planted=3'; document.head.append(one); },
            () => { const one = document.createElement('iframe'); one.srcdoc = '<script>parent.planted = 4</script>'; document.body.append(one); },
            () => { const one = document.createElement('div'); one.setAttribute('onclick', 'planted = 5'); one.click(); },
            () => { eval('planted = 6'); },
            () => { new Worker('data:text/javascript,0'); },
          ]) { try { make(); } catch { /* the reports say so */ } }
          setTimeout(done, 200);
        }))"""
    )
    assert page.evaluate("typeof planted") == "undefined"
    reports = bench.until("the reports", lambda: len(bench.violations) >= 4 and bench.take_violations())
    assert any("require-trusted-types-for" in report for report in reports), reports


def the_first_load_is_small(bench):
    page = bench.context.new_page()
    sizes = {}

    def loaded(response):
        path = response.url.removeprefix(bench.origin)
        if path.startswith("/ui/"):
            sizes[path] = response.request.sizes()["responseBodySize"]

    page.on("requestfinished", lambda request: loaded(request.response()))
    page.goto(bench.origin + "/ui/")
    bench.until_login(page)
    page.wait_for_load_state("networkidle")
    total = sum(sizes.values())
    assert 5_000 < total <= 60 * 1024, (total, sizes)
    # The overview after a login needs no page of an object.
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    bench.use_link(page, bench.link())
    expect(page.get_by_role("heading", level=1)).to_contain_text("Hello")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    assert any("/assets/Overview-" in url for url in asked), asked
    assert not any("/assets/details-" in url for url in asked), asked


run(
    a_link_logs_in_once_and_leaves_no_code_behind,
    a_link_of_another_person_is_refused,
    a_key_logs_in,
    the_pages_are_accessible,
    text_does_not_become_html,
    the_first_load_is_small,
)
