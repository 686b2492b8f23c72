"""Natural text of several kinds: English, code, Chinese, emoji."""

from pathlib import Path

ROOT = Path(__file__).parent.parent

CHINESE = """\
清晨，海边的小镇还没有醒来。渔夫们已经把船推进水里，网叠得整整齐齐，灯一盏一盏地熄灭。\
老人坐在码头上，看着远处的山慢慢变亮。他说，五十年前这里只有三户人家，冬天要走两天才能到县城。\
现在有了公路，年轻人早上出去，晚上就能回来。可是他仍然每天在这里坐一会儿，等第一艘船回港。
问：分布式系统中，两个副本如何知道彼此一致？答：先比较摘要，再比较各条链的头部；如果仍然不同，\
就把范围一分为二，逐步缩小，直到找出缺少的条目。这样传输的字节数与差异成正比，而不是与总量成正比。
"""

EMOJI = """\
🚀 Release day! ✅ tests pass, 🐛 fixed: 12, 📈 latency down 18 %. Thanks @everyone 🎉🎉
👩‍💻👨🏽‍🔬 pair of the week · ☕️ → 💡 → 🧪 → 🚢 · weather: 🌧️⛅️☀️ · mood: 🙂🙃😅🤷🏿‍♀️
Flags: 🇫🇷🇯🇵🇧🇷 · family: 👨‍👩‍👧‍👦 · maths: ∀ε>0 ∃δ>0 · music: 🎹🎻🥁 · food: 🍜🥐🍣
"""


def natural_text() -> str:
    """Return the text; the English and the code are this project's own."""
    english = (ROOT / "spec" / "01-model.md").read_text()[:6000]
    code = (ROOT / "model_host" / "generation" / "text.py").read_text()[:3000]
    return "\n".join((english, CHINESE, code, EMOJI))
