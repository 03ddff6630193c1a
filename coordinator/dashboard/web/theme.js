// Light or dark, before anything is drawn: as the person has chosen, else as the system says.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('trireme-theme');
  } catch (denied) {
    // A browser that keeps nothing: the system decides.
  }
  const system = matchMedia('(prefers-color-scheme: dark)');
  const show = (dark) => {
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  };
  show(chosen ? chosen === 'dark' : system.matches);
  // Until the person chooses.
  system.addEventListener('change', () => {
    if (chosen || document.documentElement.dataset.chosen) return;
    show(system.matches);
    document.dispatchEvent(new Event('themechange'));
  });
})();
