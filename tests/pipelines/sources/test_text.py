"""The rules that split sentences, and a pipeline of one's own."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from pipelines.sources.text import Paragraphs, paragraphs_of, split_sentences


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        ([], ()),
        (["", "  \n "], ()),
        (["One.  Two!\nThree?"], ("One.", "Two!", "Three?")),
        (["Dr. Strickland paid $3.50 to Mr. Owen of St. Louis. He left."],
         ("Dr. Strickland paid $3.50 to Mr. Owen of St. Louis.", "He left.")),
        (["A list of birds", "Another list"], ("A list of birds", "Another list")),
        (["Ends here.", "* \u2014 \u00ab"], ("Ends here.",)),
        (['He left. "Go away," she said. (It was late.) “Now.” – Then'],
         ("He left.", '"Go away," she said.', "(It was late.)", "“Now.”", "– Then")),
        (["Il part. « Où vas-tu ? » Er rief: „Halt!“ »Nein.« Dann."],
         ("Il part.", "« Où vas-tu ? »", "Er rief: „Halt!“", "»Nein.«", "Dann.")),
        (["¡Es tarde! ¿Y tú? Vamos. [1] $5."], ("¡Es tarde!", "¿Y tú?", "Vamos.", "[1] $5.")),
        (["\u4e00\u4e8c\u3002\u4e09\u3002"], ("\u4e00\u4e8c\u3002", "\u4e09\u3002")),
    ],
)  # fmt: skip
def test_rules(paragraphs: list[str], expected: tuple[str, ...]) -> None:
    assert split_sentences(paragraphs).sentences == expected


SCRIPTS = {  # sentences of a paragraph, as their readers would separate them
    "zh": ["今天早上我们组装了一个新的书架。", "首先把木板锯好并仔细打磨！", "“然后呢？”", "刷上清漆，晾了一整夜……"],
    "ja": ["今日は新しい本棚を組み立てました。", "「できた。」と父は言いました。", "それからニスを塗りましたか？"],
    "hi": ["आज सुबह हमने एक नई अलमारी बनाई।", "पहले तख्ते काटे गए।", "फिर उन पर रोगन लगाया गया॥"],
    "ar": ["هل ركبنا رفا جديدا هذا الصباح؟", "في البداية قطعنا الألواح.", "ثم طلينا الرفوف."],
    "ur": ["آج ہم نے الماری بنائی۔", "پہلے تختے کاٹے گئے۔"],
    "el": ["Τι φτιάξαμε σήμερα;", "Πρώτα κόψαμε τις σανίδες.", "Μετά βάψαμε τα ράφια."],
    "hy": ["Այսօր մենք նոր դարակ հավաքեցինք։", "Սկզբում տախտակները կտրեցինք։"],
    "am": ["ዛሬ ጠዋት አዲስ መደርደሪያ ሠራን።", "መጀመሪያ ሳንቃዎቹን ቆረጥን።", "ከዚያ ቀባናቸው፧"],
    "my": ["ယနေ့ စင်အသစ်တစ်ခု တပ်ဆင်ခဲ့သည်။", "ပထမ၊ ပျဉ်ပြားများကို ဖြတ်ခဲ့သည်။"],
    "km": ["ថ្ងៃនេះយើងបានដំឡើងធ្នើរថ្មី។", "ដំបូងយើងកាត់ក្តារ៕"],
    "bo": ["དེ་རིང་ང་ཚོས་སྒྲོམ་གསར་པ་ཞིག་བཟོས།", "དང་པོ་པང་ལེབ་བཅད།"],
    "th": ["วันนี้เราประกอบชั้นหนังสือใหม่", "ก่อนอื่นเราเลื่อยแผ่นไม้"],
    "ko": ["오늘 아침에 새 책장을 조립했습니다.", "먼저 판자를 잘랐습니다."],
    "ru": ["Сегодня мы собрали новый шкаф.", "Сначала распилили доски."],
    "en": [
        "Today Dr. Smith built a shelf, e.g. of pine.",
        "Mr. Owen cut the boards to 3.5 cm.",
        "They were varnished.",
    ],
    "de": [
        "Am 3. Mai haben wir ein neues Regal gebaut.",
        "Zuerst wurden z.B. die Bretter gesägt.",
        "Dann war es fertig.",
    ],
}


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("is_known", [False, True])
def test_sentences_end_as_their_script_and_language_end_them(language: str, is_known: bool) -> None:
    expected = SCRIPTS[language]
    text = ("" if language in ("zh", "ja") else " ").join(expected)
    assert list(split_sentences([text], language=language if is_known else "und").sentences) == expected


def test_rules_that_are_not_installed_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        split_sentences(["One. Two."], language="xq")
        split_sentences(["One. Two."], language="und")
    assert len([record for record in caplog.records if record.args == ("xq",)]) == 1


def test_no_more_is_read_than_it_takes() -> None:
    def paragraphs() -> Iterator[str]:
        yield "One. Two."
        yield "Three. Four."
        raise AssertionError("read on")

    found = split_sentences(paragraphs(), limit=3)
    assert found.sentences == ("One.", "Two.", "Three.")
    assert [found.before(paragraph) for paragraph in range(4)] == [0, 2, 3, 3]


def test_a_paragraph_longer_than_spacy_likes() -> None:
    found = split_sentences(["A long bird sleeps. " * 60_000])  # 1.2 million characters
    assert len(found.sentences) == 60_000


@pytest.mark.parametrize("text", ["!?", "(", "\u20ac", "http://a"])
def test_a_word_without_end_is_cut(text: str) -> None:
    assert split_sentences([f"One sees {text * 50_000}", "Two."]).sentences[-1] == "Two."


@pytest.mark.parametrize("language", ["de", "fr", "rm", "de-AT"])
def test_other_languages(language: str) -> None:
    assert split_sentences(["Allegra. Bun di!"], language=language).sentences == ("Allegra.", "Bun di!")


def test_paragraphs_and_what_stands_between_them() -> None:
    pieces = [1, " one", 2, " half\n", "\n \n", 3, "two\n\nthree", "\n", 4]
    assert paragraphs_of(pieces, str.upper) == Paragraphs(
        ("ONE HALF", "TWO", "THREE"), ((1, 0), (2, 0), (3, 1), (4, 3))
    )
    assert paragraphs_of([]) == Paragraphs(())


SPLITS = """
import sys
from pipelines.sources.text import split_sentences

found = split_sentences(["Put glue on it. Wait. It holds."])
assert found.sentences == ("Put glue on it.", "Wait.", "It holds."), found
assert "torch" not in sys.modules
lines = open("/proc/self/status").read().splitlines()  # of this program alone, and not of the one that began it
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
import torch

assert torch.ones(2).sum() == 2
"""


def test_splitting_by_rules_imports_no_networks() -> None:
    """Half a gigabyte less: 0.2 GB, as the operating system counts it."""
    done = subprocess.run([sys.executable, "-c", SPLITS], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 400_000  # kB
