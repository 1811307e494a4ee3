#!/usr/bin/env python3
"""Makes chat.json: conversations as the chat templates of models render them.

    python3 tests/golden/make_chat_golden.py OUT.json NAME=TEMPLATE.jinja...

The templates are the files that the models ship, which stay with them; NAME is what the tests call the format.  Needs
`pip install jinja2`; the tests do not need Python.  A case is {"format", "messages", "text"}; where the template refuses
the conversation, "text" is null.  The beginning-of-text token is written <s>.
"""
import itertools
import json
import sys

import jinja2
import jinja2.sandbox

SPACES = ["", " ", "\n", "\t\n ", "\u00a0", "\u2003\u3000", "\x1c\x85", "\u200b", "\u180e"]
TEXTS = ["Hello", "Hi there.\n\nHow are you?", "naïve — 77 €", "", "{{ x }} {% y %}", "it's \"quoted\" \\n", "<b>bold</b>"]
ROLES = [
    ["user"], ["system", "user"], ["user", "assistant", "user"], ["system", "user", "assistant", "user"], ["system"],
    ["user", "user"], ["assistant"], ["user", "system"], ["system", "assistant"],
]


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def load(path):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    with open(path, encoding="utf-8") as file:
        return environment.from_string(file.read())


def conversations():
    texts, spaces = itertools.cycle(TEXTS), itertools.cycle(SPACES)
    for _ in range(3):
        for roles in ROLES:
            yield [{"role": role, "content": next(spaces) + next(texts) + next(spaces)} for role in roles]


def render(template, messages):
    try:
        return template.render(messages=messages, bos_token="<s>", eos_token="</s>", add_generation_prompt=True)
    except Refused:
        return None


def main():
    out, *templates = sys.argv[1:]
    cases = []
    for name, path in (argument.split("=", 1) for argument in templates):
        template = load(path)
        cases += [{"format": name, "messages": messages, "text": render(template, messages)}
                  for messages in conversations()]
    about = f"Made by make_chat_golden.py with Jinja2 {jinja2.__version__}."
    with open(out, "w", encoding="ascii") as file:
        rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        file.write(f'{{"about": {json.dumps(about)},\n"cases": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
