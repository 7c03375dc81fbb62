// What is looked at stands in the address, so that it can be sent to someone and survives a reload.

const taskPattern = /^(.+)\.[0-9A-HJKMNP-TV-Z]{26}$/;

let remembered = "";

function remember(id) {
  remembered = `#${part(id)}`;
  if (location.hash !== remembered) history.pushState(null, "", remembered);
}

async function openAddress() {
  if (location.hash === remembered || location.hash.length < 2) return;
  remembered = location.hash;
  let id;
  try {
    id = decodeURIComponent(location.hash.slice(1));
  } catch {
    return;
  }
  const found = taskPattern.exec(id);
  if (!found) return openThread(id);
  shown = id;
  if (await openThread(found[1])) show(id);
}

wireAsk();
wireTicket();
wireTimeline();
addEventListener("hashchange", openAddress);
addEventListener("popstate", openAddress);
openAddress();
