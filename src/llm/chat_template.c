/* chat_template.c - from a conversation to token ids.
 *
 * Today one layout is recognised, ChatML: turns of <|im_start|>ROLE\nCONTENT<|im_end|>\n.  A template of that layout is
 * known by its markers; its default system message, if it has one, is read out of the template's text. */
#include "llm/model.h"

#include <string.h>

static const char TURN_START[] = "<|im_start|>", TURN_END[] = "<|im_end|>";

/* A conversation as text, and which bytes of it were written by somebody. */
typedef struct rendering {
  weft__bytes text;
  weft__bytes spans; /* weft_text_span[] */
} rendering;

static weft_status add_text(rendering *r, const char *text) { return weft__bytes_add(&r->text, text, strlen(text)); }

static weft_status add_literal(rendering *r, const char *text, size_t n_bytes) {
  weft_text_span span = {r->text.n, n_bytes};
  weft_status status = weft__bytes_add(&r->text, text, n_bytes);
  return status || n_bytes == 0 ? status : weft__bytes_add(&r->spans, &span, sizeof span);
}

static weft_status add_turn(rendering *r, const char *role, const char *content, size_t n_content) {
  weft_status status = add_text(r, TURN_START);
  if (!status) status = add_literal(r, role, strlen(role));
  if (!status) status = add_text(r, "\n");
  if (!status) status = add_literal(r, content, n_content);
  if (!status) status = add_text(r, TURN_END);
  return status ? status : add_text(r, "\n");
}

/* Undoes the escapes of a template's string literal in place (\n, \t, \', \", \\); returns the new length. */
static size_t unescape(char *text, size_t n) {
  size_t out = 0;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (c == '\\' && i + 1 < n) {
      c = text[++i];
      if (c == 'n')
        c = '\n';
      else if (c == 't')
        c = '\t';
    }
    text[out++] = c;
  }
  return out;
}

/* The quote that opens the literal around `at`: the last one before it that is not escaped. */
static char opening_quote(const char *template, const char *at) {
  while (at > template) {
    at--;
    if ((*at == '\'' || *at == '"') && (at == template || at[-1] != '\\')) return *at;
  }
  return 0;
}

/* Whether the literal goes on from `text` to `end`: its quote does not stand between, unescaped. */
static bool is_one_literal(const char *text, const char *end, char quote) {
  for (; text < end; text++) {
    if (*text == '\\')
      text++;
    else if (*text == quote)
      return false;
  }
  return true;
}

/* The text between "<|im_start|>system\n" and "<|im_end|>" if the template spells out both in one literal; the newline
 * may be written as itself or escaped. */
static weft_status add_default_system(rendering *r, const char *template) {
  for (const char *at = template; (at = strstr(at, "<|im_start|>system"));) {
    char quote = opening_quote(template, at);
    at += strlen("<|im_start|>system");
    const char *message = *at == '\n' ? at + 1 : !strncmp(at, "\\n", 2) ? at + 2 : NULL;
    const char *end = message ? strstr(message, TURN_END) : NULL;
    if (!end || !is_one_literal(message, end, quote)) continue; /* the message is computed */
    char *text = weft__dup(message, (size_t)(end - message));
    if (!text) return WEFT_ENOMEM;
    weft_status status = add_turn(r, "system", text, unescape(text, (size_t)(end - message)));
    weft_free(text);
    return status;
  }
  return WEFT_OK;
}

static weft_status render_chatml(rendering *r, const char *template, const weft_chat_message *messages, size_t n) {
  bool has_system = n > 0 && !strcmp(messages[0].role, "system");
  weft_status status = has_system ? WEFT_OK : add_default_system(r, template);
  for (size_t i = 0; i < n && !status; i++)
    status = add_turn(r, messages[i].role, messages[i].content, strlen(messages[i].content));
  if (!status) status = add_text(r, TURN_START);
  return status ? status : add_text(r, "assistant\n");
}

static weft_status check_template(const weft_model *model) {
  const char *template = model->chat_template, *path = weft_gguf_path(model->gguf);
  if (!template)
    return weft__error(WEFT_EUNSUPPORTED, "%s: the model has no chat template (use --raw for a plain prompt)", path);
  bool is_chatml = strstr(template, TURN_START) && strstr(template, TURN_END) &&
                   weft_tokenizer_find(model->tokenizer, TURN_START) >= 0 &&
                   weft_tokenizer_find(model->tokenizer, TURN_END) >= 0;
  if (!is_chatml)
    return weft__error(WEFT_EUNSUPPORTED,
                       "%s: the model's chat template is not one that weft knows: ChatML (use --raw and write out the "
                       "turns in the prompt)",
                       path);
  return WEFT_OK;
}

weft_status weft_model_apply_chat(const weft_model *model, const weft_chat_message *messages, size_t n_messages,
                                  int32_t **ids, size_t *n_ids) {
  weft_status status = check_template(model);
  if (status) return status;
  rendering r = {0};
  status = render_chatml(&r, model->chat_template, messages, n_messages);
  if (!status)
    status = weft_tokenizer_encode(model->tokenizer, r.text.data, r.text.n, 0,
                                   (const weft_text_span *)(const void *)r.spans.data,
                                   r.spans.n / sizeof(weft_text_span), ids, n_ids);
  weft__bytes_clear(&r.text);
  weft__bytes_clear(&r.spans);
  return status;
}
