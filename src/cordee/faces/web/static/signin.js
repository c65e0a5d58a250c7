/* A link may bring a token behind "#token=". It leaves the address at once; where a token is asked for it is sent, in the body. */

(() => {
  const brought = /^#token=([^&]*)&?(.*)$/.exec(location.hash);
  if (brought) history.replaceState(null, "", brought[2] ? `#${brought[2]}` : location.pathname);
  const form = document.querySelector('form[action="/sign-in"]');
  if (!form) return;
  form.action += location.hash; // the page that was asked for is shown next
  if (!brought) return;
  form.elements.token.value = decodeURIComponent(brought[1]);
  form.submit();
})();
