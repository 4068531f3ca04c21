"""The view in Jupyter."""

from __future__ import annotations

from typing import Any

from pcitrace.view.bundle import asset, script

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError(f"the view in Jupyter needs anywidget: pip install 'pcitrace[notebooks]' ({error})") from error

__all__ = ["ViewWidget"]


class ViewWidget(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
    """Shows a run; it is read only, and goes on working in a saved notebook."""

    _esm = (
        script()
        + """
function render({ model, el }) {
  const home = document.createElement("div");
  el.append(home);
  show(home, model.get("about"), model.get("packed"));
}
export default { render };
"""
    )
    _css = asset("view.css")
    about = traitlets.Dict().tag(sync=True)
    packed = traitlets.Unicode().tag(sync=True)

    def __repr__(self) -> str:
        about: Any = self.about
        return f"<View of {about['title']}>"
