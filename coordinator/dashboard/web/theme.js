// Light or dark, before anything is drawn: as the person has chosen, else as the system says.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('trireme-theme');
  } catch (denied) {
    // A browser that keeps nothing: the system decides.
  }
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();
