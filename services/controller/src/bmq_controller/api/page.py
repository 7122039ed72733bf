"""The page at /docs: the REST API's OpenAPI document as a table. One page without anything from elsewhere, so that it
works offline.
"""

DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>bmq REST API</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border: 1px solid #8884; border-radius: 6px; margin: 1rem 0; padding: .5rem 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; } pre { overflow: auto; background: #8881; padding: .5rem; }
h2 { font-size: 1rem; margin: .3rem 0; } .method { text-transform: uppercase; font-weight: bold; margin-right: .5rem; }
table { border-collapse: collapse; } td { padding: .1rem .8rem .1rem 0; vertical-align: top; }
</style></head><body>
<h1>bmq REST API</h1>
<p>The same as a document for tools: <a href="openapi.json">openapi.json</a>.</p>
<p><label>Token, where the node asks for one: <input id="token" type="password" autocomplete="off"></label></p>
<main></main>
<script>
const main = document.querySelector("main");
const make = (tag, text, parent) => {
  const node = document.createElement(tag); node.textContent = text ?? ""; parent.append(node); return node;
};
const named = schema => schema?.$ref?.split("/").pop() ?? (schema?.items ? named(schema.items) + "[]" : schema?.type ?? "");
fetch("openapi.json").then(reply => reply.json()).then(api => {
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, operation] of Object.entries(methods)) {
    const box = make("section", "", main), head = make("h2", "", box);
    make("span", method, head).className = "method";
    make("code", path, head);
    make("p", operation.description ?? operation.summary, box);
    for (const one of operation.parameters ?? []) make("p", one.name + " (" + one.in + "): " + (one.description ?? named(one.schema)), box);
    const answer = named(operation.responses["200"]?.content?.["application/json"]?.schema);
    if (answer) make("p", "Answers: " + answer, box);
    if (method === "get") {
      const button = make("button", "Try", box), out = make("pre", "", box);
      out.hidden = true;
      button.onclick = () => {
        const target = path.replace(/{([^}]+)}/g, (_, name) => encodeURIComponent(prompt(name) ?? ""));
        const headers = token.value ? {authorization: "Bearer " + token.value} : {};
        fetch(target.replace(/^[/]/, ""), {headers}).then(async reply => {
          out.hidden = false; out.textContent = reply.status + "\\n" + await reply.text();
        });
      };
    }
  }
  make("h1", "Types", main);
  for (const [name, schema] of Object.entries(api.components?.schemas ?? {})) {
    const box = make("section", "", main); make("h2", name, box); make("p", schema.description, box);
    const table = make("table", "", box);
    for (const [field, type] of Object.entries(schema.properties ?? {})) {
      const row = make("tr", "", table); make("code", field, make("td", "", row));
      make("td", named(type) || (type.anyOf ?? []).map(named).join(" or "), row); make("td", type.description, row);
    }
  }
});
</script></body></html>
"""
