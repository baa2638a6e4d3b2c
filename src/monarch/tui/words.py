"""The dashboard's own words in Chinese, ``--lang zh``.

What comes of the program stays as it is: verdicts and reasons, names, logs, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHINESE = {
    # screens
    "Now": "现况",
    "Ranks": "进程",
    "Stacks": "堆栈",
    "Waits": "等待",
    "Logs": "日志",
    "Failures": "故障",
    "Tree": "树",
    "SQL": "SQL",
    # the connection
    "live": "实时",
    "connecting": "正在连接",
    "asks when told to": "按需查询",
    "HELD, {age} old; f goes on": "已暂停,{age} 前的数据;f 继续",
    " ENDED: what is shown is the last of the program, {age} old ": (
        " 已结束:显示程序最后的状态,{age} 前 "
    ),
    " LOST: {trouble} ": " 连接中断:{trouble} ",
    "- what is shown is {age} old ": "- 显示 {age} 前的数据 ",
    "looking ...": "正在查看 ...",
    "asking ...": "正在询问 ...",
    "up {time}": "已运行 {time}",
    "on": "开",
    "off": "关",
    "sys": "系统",
    "stopped": "已停止",
    # keys
    "? help  q quit  / find  f hold": "? 帮助  q 退出  / 查找  f 暂停",
    "Enter goes there  v other figure": "Enter 前往  v 换指标",
    "< > sort by  r reverse  Enter stack  l logs": "< > 排序  r 反转  Enter 堆栈  l 日志",
    "Tab fold  c fold all  Enter logs": "Tab 折叠  c 全部折叠  Enter 日志",
    "Tab fold  c fold all  Enter stack": "Tab 折叠  c 全部折叠  Enter 堆栈",
    "Tab fold  c fold all  Enter last output": "Tab 折叠  c 全部折叠  Enter 最后输出",
    "m which ranks  Enter whole line": "m 选择进程  Enter 整行",
    "Tab expand  Enter details  c s h p C d": "Tab 展开  Enter 详情  c s h p C d",
    "Enter asks  Esc leaves the line  e edits it": "Enter 执行  Esc 离开输入行  e 编辑",
    "{title}, Esc closes": "{title},Esc 关闭",
    "help": "帮助",
    "find": "查找",
    "no line here has {text!r}": "没有包含 {text!r} 的行",
    # lines
    "details": "详情",
    "diagnostics": "诊断",
    "{kind} details": "{kind} 详情",
    "py-spy of {proc}": "{proc} 的 py-spy",
    "configuration of {proc}": "{proc} 的配置",
    "line": "整行",
    "row": "整行数据",
    "map: {figure}": "图:{figure}",
    "{count:,} ranks": "{count:,} 个进程",
    "a cell is {count} ranks": "每格 {count} 个进程",
    "{count:,} in the way": "{count:,} 阻碍",
    "{figure} {low} to {high}": "{figure} {low} 至 {high}",
    "not known": "未知",
    "{count:,} failures, the first one first": "{count:,} 个故障,最早的在前",
    "and {count:,} more": "还有 {count:,} 个",
    "{count:,} that follow from these": "由此引起的 {count:,} 个",
    "nothing has failed": "没有故障",
    "nobody waits for anybody": "没有谁在等待",
    "(see above)": "(见上)",
    "{rank} only waits for messages": "{rank} 只是在等待消息",
    "no lines yet": "还没有日志",
    "{count:,} lines": "{count:,} 行",
    "{count:,} rows": "{count:,} 行",
    "{at:,} of {count:,}": "{at:,} / {count:,}",
    # columns and figures
    "rank": "进程",
    "state": "状态",
    "for": "时长",
    "seconds": "秒",
    "queue": "队列",
    "handled": "已处理",
    "memory": "内存",
    "rss": "内存",
    "cpu": "CPU",
    "pid": "pid",
    "host": "主机",
    # states of ranks
    "ended": "已结束",
    "idle": "空闲",
    "runs": "运行",
    "starts": "启动",
    "polls": "轮询",
    "collective": "集合通信",
    "waits": "等待",
    "debugged": "调试中",
    "stands": "停滞",
    "absent": "缺席",
    "holds the GIL": "占用 GIL",
    "frozen": "冻结",
    "does not answer": "无应答",
    "silent": "无应答",
    "silent host": "主机无应答",
    "failed": "失败",
    # saved questions
    "which tables there are": "有哪些表",
    "the longest queues": "最长的队列",
    "who handles what, and since when": "谁在处理什么,从何时起",
    "memory by mesh": "各 mesh 的内存",
    "processes that have ended": "已结束的进程",
    "who waits for whom": "谁在等谁",
    "hosts": "主机",
    "GPUs": "GPU",
}
"""By what it is in English. Lines of help, which are long, are in `HELP`."""

KEYS = """\
1-8 画面   j k ↓ ↑ 移动   g G 首尾   PgUp PgDn 翻页   ← → 左右
/ 查找   n N 下一个、上一个   f 暂停或继续   Enter 前往
Esc 关闭   q 退出"""

HELP = {
    "Now": """\
一句话说明问题所在;谁阻碍了其他进程;每个进程一格;故障。
进程多于格子时,几个进程共用一格,显示其中最要紧的。
v 换成别的指标:停留秒数、队列、已处理消息、内存、CPU,
0 最少,9 最多。

图中:! 阻碍  c 集合通信  w 等待  s 停滞  r 运行  p 轮询
d 调试中  a 缺席  g 占用 GIL  z 冻结  F 失败  + 启动
- 已结束  ? 无应答  x 主机无应答""",
    "Ranks": """\
所有 mesh 的所有进程。按状态排序时,阻碍者在前,其次是状况最差的。
< > 选择排序的列,r 反转顺序。Enter 显示堆栈,l 显示日志。""",
    "Stacks": """\
停在同一处的进程归为一组(相隔一秒看两次):阻碍者(!)在前,
然后是各 mesh 最大的一组和异常的组。
最大的一组没有的帧标有 ≠。只等待消息的进程不列出。
Enter 显示该组第一个进程的日志。""",
    "Waits": """\
先是循环等待;然后是不等待别人却被等待的,下面列出直接或间接
等待它的。再后是已满的邮箱,以及有较慢进程的 mesh。
Enter 显示堆栈。""",
    "Logs": """\
进程输出的行,按时间排列,也包括已结束的进程。标记在最后一行时,
新行会把其他行推上去;G 到最后。m 选择进程:
trainers、trainers[0,3-5]、trainers WARNING,空则为全部。
/ 查找文本。Enter 显示整行。""",
    "Failures": """\
故障,最初的原因在最前,附完整消息;由其他故障引起的折叠在最后。
Enter 显示该进程最后的输出。""",
    "Tree": """\
主机、进程、actor;旁边是所标记一项的信息,Enter 显示全部。
Tab 展开或折叠,c 全部折叠。s 显示 Monarch 自身的进程和 actor,
h 显示已停止的;失败的总会显示。
p py-spy;C 配置;d 各节点的应答。""",
    "SQL": """\
输入语句后按 Enter;Esc 离开输入行,按键又成为命令,e 返回。
表与 monarch query 相同:SHOW TABLES、DESCRIBE actors。
还没有提问时显示已保存的问题:Enter 执行。""",
}
"""Of each screen, by its English title; no line is wider than 72 columns."""

_spoken: Mapping[str, str] = {}


def speak(language: str) -> None:
    """Choose the language of `said`, for this process: it shows one dashboard.

    Args:
        language: ``en`` or ``zh``.

    Raises:
        ValueError: It is neither.
    """
    global _spoken
    languages: dict[str, Mapping[str, str]] = {"en": {}, "zh": CHINESE}
    if language not in languages:
        raise ValueError(f"the dashboard speaks {' and '.join(languages)}, not {language!r}")
    _spoken = languages[language]


def said(text: str, /, **places: Any) -> str:
    """A text in the language that was chosen; as it is where there is no other.

    Args:
        text: In English.
        places: What stands in its braces.
    """
    found = _spoken.get(text, text)
    return found.format(**places) if places else found


def help_of(title: str, text: str, keys: str) -> tuple[str, str]:
    """The help of a screen and of all keys.

    Args:
        title: Of the screen, in English.
        text: Its help, in English.
        keys: Those of all screens, in English.
    """
    return (HELP[title], KEYS) if _spoken else (text, keys)
