"""Pages as sites write them: which pictures they have and where, and in which character set they are."""

import codecs

import pytest

from pipelines.sources.html import Page, PagePicture, read_page

URL = "https://h.example/a/page.html"
SAW = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
GLUE = "Put glue on both sides, press them together with clamps, and leave the whole thing alone for a night."
LAST = "Then sand everything by hand, varnish it twice, and put the finished shelf against the wall of your choice."


def article(markup: str, head: str = "") -> bytes:
    """Return a page whose second paragraph comes after some markup."""
    return (
        f'<!DOCTYPE html><html lang="en-GB"><head><title>A shelf</title>{head}</head><body><header>'
        f'<img src="/logo.png"><nav><a href="/">Home</a> <a href="/b">About us</a></nav></header>'
        f"<article><h1>How to make a shelf</h1><p>{SAW}</p>{markup}<p>{GLUE}</p><p>{LAST}</p></article>"
        f"<aside><img src='/advert.jpg'><p>Buy now</p></aside>"
        f"<footer>Copyright <img src='/end.png'></footer></body></html>"
    ).encode()


def shown(page: Page) -> list[str]:
    """Return the first word of each paragraph, and the first address of each picture."""
    return [f"<{piece.addresses[0]}>" if isinstance(piece, PagePicture) else piece.split()[0] for piece in page.pieces]


SETS = "/s/300.jpg 300w, /s/900.jpg 900w, /s/2000.jpg 2000w"
PICTURES = {  # markup, address relative to the site's root; "": none
    "plain": ('<p><img src="p.jpg"></p>', "/a/p.jpg"),
    "no ending": ('<p><img src="/image?id=7"></p>', "/image?id=7"),
    "figure": ('<figure><div><img src="/p.jpg"></div><figcaption>A saw</figcaption></figure>', "/p.jpg"),
    "div": ('<div class="x"><div><a href="/big.html"><img src="/p.jpg"></a></div></div>', "/p.jpg"),
    "srcset alone": (f'<div><img srcset="{SETS}"></div>', "/s/2000.jpg"),
    "srcset and sizes": (f'<img src="/x.jpg" srcset="{SETS}" sizes="(max-width: 600px) 100vw, 600px">', "/s/900.jpg"),
    "srcset by density": ('<img src="/1.jpg" srcset="/1.jpg, /2.jpg 2x, /3.jpg 3x">', "/2.jpg"),
    "commas in srcset": ('<img srcset="/c,w_300/p.jpg 300w, /c,w_900/p.jpg 900w">', "/c,w_900/p.jpg"),
    "picture": ('<picture><source media="(max-width: 600px)" srcset="/small.webp"><source srcset="/large.webp">'
                '<img src="/p.jpg"></picture>', "/large.webp"),
    "picture, late": ('<picture><source data-srcset="/large.webp 1000w"><img src="data:,"></picture>', "/large.webp"),
    "data-src": ('<p><img src="/loading.png" data-src="/p.png" class="lazyload"></p>', "/p.png"),
    "data-src without an ending": ('<img src="/loading.png" data-src="//cdn.example/7">', "//cdn.example/7"),
    "data-original": ('<img src="/grey.gif" data-original="/p.png">', "/p.png"),
    "data-lazy-src": ('<img src="/s.gif" data-lazy-src="/p.png">', "/p.png"),
    "data-srcset": ('<img src="/s.gif" data-srcset="/p.png 1024w">', "/p.png"),
    "data-hi-res-src": ('<img src="/s.gif" data-hi-res-src="/p.png">', "/p.png"),
    "a library of its own": ('<img class="x lazyload" src="/s.gif" data-zz="/p.png?x=1">', "/p.png?x=1"),
    "noscript behind": ('<div><img class="lazy" src="data:,"><noscript><img src="/p.png"></noscript></div>', "/p.png"),
    "noscript before": ('<div><noscript><img src="/p.png"></noscript><img src="data:,"></div>', "/p.png"),
    "noscript alone": ('<div><noscript><img src="/p.png"></noscript></div>', "/p.png"),
    "a preview and a shadow": ('<figure><div><img src="/max/60/p.png?q=20"><img class="u" width="900"><noscript>'
                               '<img src="/p.png"></noscript></div></figure>', "/p.png"),
    "a preview": ('<p><img src="/max/60/p.png?q=20" data-src="/max/900/p.png"></p>', "/max/900/p.png"),
    "data: alone": ('<p><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="></p>', ""),
    "a stand-in alone": ('<p><img src="/img/placeholder.png"></p>', ""),
    "a counting pixel": ('<p><img src="/p.jpg" width="1" height="1"></p>', ""),
    "hidden": ('<div style="display: none"><img src="/p.jpg"></div>', ""),
    "related pages": ('<div class="related"><a href="/r"><img src="/p.jpg"></a></div>', ""),
    "the copy in an AMP image": ('<amp-img src="/p.jpg" width="16" height="9" layout="responsive"><noscript>'
                                 '<img src="/p.jpg"></noscript></amp-img>', "/p.jpg"),
    "PageSpeed": ('<img data-pagespeed-lazy-src="/p.jpg" src="/1.JiBnMqyl6S.gif">', "/p.jpg"),
    "backslashes": (r'<p><img src="\img\p.jpg"></p>', "/img/p.jpg"),
    "a grey cat": ('<p><img src="/grey-cat.jpg"></p>', "/grey-cat.jpg"),
    "a loading dock": ('<p><img src="/the-loading-dock.jpg"></p>', "/the-loading-dock.jpg"),
    "only grey": ('<p><img src="/grey_300x200.png"></p>', ""),
    "a loading icon": ('<p><img src="/img-loading.gif"></p>', ""),
    "a long attribute": (f'<p><img data-src="{"photo of a garden, " * 5000}" src="/p.jpg"></p>', "/p.jpg"),
    "no address": ('<p><img src="https://["></p>', ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_where_the_page_has_it(name: str) -> None:
    markup, address = PICTURES[name]
    page = read_page(article(markup), URL)
    found = (
        [] if not address else [f"<https:{address}>" if address.startswith("//") else f"<https://h.example{address}>"]
    )
    assert shown(page) == ["How", "Cut", *found, "Put", "Then"]


@pytest.mark.parametrize("base", ["https://cdn.example/deep/", "//cdn.example/deep/", "/deep/", "deep/"])
def test_addresses_are_resolved_against_the_base(base: str) -> None:
    page = read_page(article('<p><img src="p.jpg"></p>', f'<base target="_top"><base href="{base}">'), URL)
    expected = {"/deep/": "https://h.example/deep/", "deep/": "https://h.example/a/deep/"}
    assert shown(page)[2] == f"<{expected.get(base, 'https://cdn.example/deep/')}p.jpg>"


def test_what_a_page_says() -> None:
    page = read_page(
        article(
            '<figure><img src="/1.jpg" alt="a saw"><figcaption>Our saw, by Ann</figcaption></figure>'
            '<img src="/2.jpg" alt="b">'
        ),
        URL,
    )
    pictures = [piece for piece in page.pieces if isinstance(piece, PagePicture)]
    assert [each.caption for each in pictures] == ["Our saw, by Ann", "b"]
    assert "Our saw, by Ann" not in page.pieces
    assert (page.images, page.language, page.title) == (5, "en-GB", "A shelf")


def test_a_page_of_ones_own_is_read_whole() -> None:
    page = read_page(b"<h1>Shelf</h1>Short.<br>Two <img src='img/a.png'> words<ul><li>One.</ul>", is_whole=True)
    assert page.pieces == ("Shelf", "Short.", PagePicture(("img/a.png",)), "Two words", "One.")
    assert read_page(b"", is_whole=True).pieces == read_page(b"  ").pieces == ()


def test_the_n_equal_paragraphs_keep_their_pictures() -> None:
    steps = "".join(f'<h2>Step</h2><img src="/{n}.jpg"><p>Wait.</p><p>{SAW} {n}</p>' for n in range(4))
    found = shown(read_page(article(steps), URL))
    assert [each for each in found if each.startswith("<")] == [f"<https://h.example/{n}.jpg>" for n in range(4)]
    at = found.index("<https://h.example/2.jpg>")
    assert found[at - 1 : at + 3] == ["Step", "<https://h.example/2.jpg>", "Wait.", "Cut"]


POLISH = "Dziś rano złożyliśmy nową półkę na książki z sosnowych desek; żółte zostały."
CHARSETS = {  # codec of the bytes, header, head, charset, whether it is guessed
    "header": ("iso-8859-2", "text/html; charset=ISO-8859-2", "", "iso-8859-2", False),
    "quoted": ("iso-8859-2", 'text/html;charset="latin2"', "", "iso-8859-2", False),
    "meta": ("windows-1250", "text/html", '<meta charset="cp1250">', "windows-1250", False),
    "http-equiv": ("windows-1250", "", "<meta http-equiv=content-type content='text/html; charset=windows-1250'>",
                   "windows-1250", False),
    "header before meta": ("iso-8859-2", "text/html; charset=iso-8859-2", '<meta charset="windows-1251">', "iso-8859-2",
                           False),
    "late": ("iso-8859-2", "", f'<!--{"x" * 5000}--><meta charset="iso-8859-2">', "iso-8859-2", False),
    "in a comment": ("iso-8859-2", "", '<!--<meta charset="koi8-r">--><meta charset="iso-8859-2">', "iso-8859-2",
                     False),
    "unknown, then meta": ("utf-8", "text/html; charset=utf-4", '<meta charset="utf-8">', "utf-8", False),
    "cannot decode, then meta": ("iso-8859-2", "text/html; charset=utf-8", '<meta charset="iso-8859-2">', "iso-8859-2",
                                 False),
    "single bytes for UTF-8": ("utf-8", "text/html; charset=iso-8859-1", "", "utf-8", False),
    "UTF-16 for UTF-8": ("utf-8", "text/html; charset=unicode", "", "utf-8", False),
    "UTF-8 undeclared": ("utf-8", "", "", "utf-8", False),
    "a damaged byte": ("utf-8+", "text/html; charset=utf-8", '<meta charset="iso-8859-2">', "utf-8", False),
    "a damaged byte, declared otherwise": ("utf-8+", "text/html; charset=iso-8859-1", "", "utf-8", False),
    "a damaged byte, undeclared": ("utf-8+", "", "", "utf-8", False),
    "a byte without a character": ("windows-1250+", "text/html; charset=windows-1250", "", "windows-1250", False),
    "guessed by language": ("iso-8859-2", "", '<meta charset="iso-8859&#8211;2">', "iso-8859-2", True),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARSETS)
def test_the_character_set_is_the_first_that_can_be(name: str) -> None:
    codec, header, head, charset, is_guessed = CHARSETS[name]
    body = f'<html lang="pl"><head>{head}</head><body><p>{POLISH}</p></body></html>'.encode(codec.removesuffix("+"))
    damage = (b"<p>\x81</p></body>", ("\ufffd",)) if codec.endswith("+") else (b"</body>", ())
    page = read_page(body.replace(b"</body>", damage[0]), content_type=header or None, is_whole=True)
    assert (page.pieces, page.charset, page.is_charset_guessed) == ((POLISH, *damage[1]), charset, is_guessed)


JAPANESE = "今日は新しい本棚を組み立てました。それからニスを塗りました。"


def test_a_damaged_byte_among_few_garbles_nothing() -> None:
    body = "<p>« Café, » dit-elle.</p>".encode() + b"<p>\xff</p>"
    page = read_page(body, content_type="text/html; charset=utf-8", is_whole=True)
    assert (page.pieces, page.charset) == (("« Café, » dit-elle.", "\ufffd"), "utf-8")


@pytest.mark.parametrize(
    ("codec", "text"),
    [("cp932", JAPANESE), ("euc_jp", JAPANESE), ("cp949", "오늘 아침에 새 책장을 조립했습니다."),
     ("big5", "今天早上我們組裝了一個新的書架。首先把木板鋸好。"),
     ("gb18030", "今天早上我们组装了一个新的书架。首先把木板锯好。")],
)  # fmt: skip
def test_undeclared_pages_of_east_asia_are_guessed(codec: str, text: str) -> None:
    page = read_page(f"<p>{text}</p>".encode(codec) * 2, is_whole=True)
    assert page.is_charset_guessed and page.pieces[0] == text


@pytest.mark.parametrize(
    ("text", "codec"),
    [("①今日は本棚を組み立てました。", "cp932"), ("오늘 아침에 우리는 책장을 조립했습니다. 뷁", "cp949"),
     ("今天早上我们用松木板组装了一个新的书架。𠮷", "gb18030"), ("①今日は本棚を組み立てました。", "euc_jis_2004")],
)  # fmt: skip
def test_labels_mean_what_the_web_means(text: str, codec: str) -> None:
    label = {"cp932": "shift_jis", "cp949": "euc-kr", "gb18030": "gb2312", "euc_jis_2004": "euc-jp"}[codec]
    page = read_page(f"<p>{text}</p>".encode(codec), content_type=f"text/html; charset={label}", is_whole=True)
    assert page.pieces == (text,)


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_a_byte_order_mark_goes_before_all(mark: bytes) -> None:
    codec = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le"}.get(mark, "utf-16-be")
    page = read_page(mark + f"<p>{POLISH}</p>".encode(codec), content_type="text/html; charset=koi8-r", is_whole=True)
    assert page.pieces == (POLISH,)
