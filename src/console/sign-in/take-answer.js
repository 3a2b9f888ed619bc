// The page to which an identity provider sends people back. It loads nothing but this, which takes the answer out of the address
// before the console is opened. The names are those of `sign-in.js`, which is no part of this page.

const answer = location.search;
history.replaceState(null, "", location.pathname);
sessionStorage.setItem("readout.sign-in.answer", answer);
location.replace("/");

export {};
