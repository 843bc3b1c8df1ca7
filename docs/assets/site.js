// Wide tables scroll in a box: the keyboard must reach it.
document$.subscribe(() => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) box.tabIndex = 0;
});
