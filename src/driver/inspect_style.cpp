// Style and script of the page, as they stand in it.
#include "driver/inspect_parts.h"

namespace inkle::driver {

std::string_view page_style() {
  return R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2129;--dim:#667080;--line:#e3e6ea;
--soft:#f2f4f6;--accent:#2458c6;--mark:#fff1b8;--good:#1a7f4b;--warn:#a15c00;--bad:#b3261e;
--c0:#4c78c9;--c1:#d98a3d;--c2:#4fa27c;--c3:#b6618f;--c4:#8a79c4;--c5:#4aa3b5;--c6:#b5a03c;--c7:#87909c}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--card:#1b1f26;--ink:#e4e7ec;--dim:#98a2b1;
--line:#2e343e;--soft:#222831;--accent:#86aef8;--mark:#4d4113;--good:#6ecb97;--warn:#e6ae5c;
--bad:#f28b82;--c0:#5b86d6;--c1:#c98440;--c2:#4c9a77;--c3:#b0648d;--c4:#8a7bc0;--c5:#4795a5;
--c6:#a18f3b;--c7:#6f7885}}
*{box-sizing:border-box}
html{scroll-padding-top:56px}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,header>div,nav>div{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding:30px 0 18px}
header .brand{color:var(--dim);font-size:13px;letter-spacing:.02em}
h1{margin:2px 0 2px;font-size:27px;line-height:1.25;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{margin:0 0 12px;font-size:20px;letter-spacing:-.005em}
h3{margin:26px 0 8px;font-size:15px}
p{margin:6px 0;max-width:86ch}
.note,.dim{color:var(--dim)}.note{font-size:13.5px}
nav{position:sticky;top:0;z-index:5;background:var(--bg);border-block:1px solid var(--line)}
nav>div{display:flex;gap:22px;overflow-x:auto;white-space:nowrap}
nav a{padding:10px 0;color:var(--dim);text-decoration:none;font-size:14px}
nav a:hover{color:var(--ink)}
a{color:var(--accent)}
section{padding:30px 0 6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 16px 13px}
.tile span{display:block;color:var(--dim);font-size:13px}
.tile b{display:block;font-size:23px;font-weight:600;letter-spacing:-.01em;line-height:1.35;
font-variant-numeric:tabular-nums}
.tile small{display:block;color:var(--dim);font-size:12.5px;line-height:1.4}
.stack{display:flex;height:18px;gap:2px;overflow:hidden;border-radius:5px}
.stack span{flex:0 0 0;min-width:2px}
.legend{display:flex;flex-wrap:wrap;gap:4px 22px;margin:9px 0 0;padding:0;list-style:none;
font-size:13.5px;font-variant-numeric:tabular-nums}
.legend i{display:inline-block;width:10px;height:10px;margin-right:7px;border-radius:3px}
.legend b{font-weight:600}
.c0{background:var(--c0);fill:var(--c0)}.c1{background:var(--c1);fill:var(--c1)}
.c2{background:var(--c2);fill:var(--c2)}.c3{background:var(--c3);fill:var(--c3)}
.c4{background:var(--c4);fill:var(--c4)}.c5{background:var(--c5);fill:var(--c5)}
.c6{background:var(--c6);fill:var(--c6)}.c7{background:var(--c7);fill:var(--c7)}
.share{display:grid;grid-template-columns:minmax(110px,190px) 1fr 84px 62px;gap:12px;
align-items:center;padding:2px 0;font-size:13.5px}
.share .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.track{display:block;height:10px;border-radius:3px;background:var(--soft);overflow:hidden}
.track i{display:block;height:100%;background:var(--c0)}
.num{text-align:right;font-variant-numeric:tabular-nums}
.tools{display:flex;flex-wrap:wrap;gap:10px;align-items:center;margin:0 0 10px}
input[type=search]{flex:0 1 340px;padding:7px 11px;border:1px solid var(--line);border-radius:6px;
background:var(--card);color:inherit;font:inherit;font-size:14px}
button{font:inherit;cursor:pointer}
.tools button{padding:6px 12px;border:1px solid var(--line);border-radius:6px;
background:var(--card);color:inherit;font-size:13.5px}
.tools button:hover{border-color:var(--dim)}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
.wide>table{width:100%}
th,td{padding:7px 12px;text-align:right;vertical-align:top;white-space:nowrap}
thead th{color:var(--dim);font-weight:500;border-bottom:1px solid var(--line);background:var(--card)}
tbody tr+tr td{border-top:1px solid var(--line)}
tbody tr:hover td{background:var(--soft)}
td.what,th.what{text-align:left;white-space:normal;min-width:250px;width:46%}
td.left,th.left{text-align:left}
td.what .ops{display:block;color:var(--dim);overflow-wrap:anywhere;line-height:1.4}
td.what .at{color:var(--dim);font-size:12.5px}
.plain th{text-align:left;font-weight:500;padding-left:0}
.plain td.note{text-align:left;white-space:normal}
.plain td,.plain th{padding-block:3px;border:0}
th button{position:relative;padding:0;border:0;background:none;color:inherit;font-weight:inherit}
th button::after{content:"";position:absolute;left:100%;margin-left:1px}
th[aria-sort=ascending] button::after{content:"↑"}th[aria-sort=descending] button::after{content:"↓"}
th[aria-sort] button{color:var(--ink)}
.meter{display:inline-block;width:64px;height:7px;margin-left:9px;border-radius:3px;
background:var(--soft);overflow:hidden;vertical-align:1px}
.meter i{display:block;height:100%;background:var(--c2)}.meter.low i{background:var(--c1)}
.share-bar i{background:var(--c0)}
.kind{display:inline-block;padding:0 7px;border-radius:4px;background:var(--soft);
color:var(--dim);font-size:12px;line-height:19px}
details{margin:0 0 8px;border:1px solid var(--line);border-radius:8px;background:var(--card)}
details details{margin:8px 0 0;background:none}
summary{padding:9px 14px;cursor:pointer;overflow-wrap:anywhere}
summary:hover{background:var(--soft);border-radius:8px}
summary b{font-weight:600}
summary .right{float:right;margin-left:14px;color:var(--dim);font-size:13.5px;
font-variant-numeric:tabular-nums}
.body{padding:2px 14px 12px}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:5px 16px;margin:0;font-size:13.5px}
.facts dt{color:var(--dim)}.facts dd{margin:0;min-width:0;overflow-wrap:anywhere}
.chip{display:inline-block;margin:0 5px 4px 0;padding:0 8px;border:1px solid var(--line);
border-radius:4px;background:var(--soft);color:inherit;font-size:12.5px;line-height:21px;
max-width:100%;overflow-wrap:anywhere;text-align:left}
.chip.src{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace;color:var(--accent);
background:none}
.chip.src:hover{background:var(--soft)}
pre{margin:0;padding:10px 14px;overflow:auto;max-height:70vh;border-top:1px solid var(--line);
font:12.5px/1.55 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;tab-size:4}
.body pre{border:1px solid var(--line);border-radius:6px;margin-top:8px}
pre.code{counter-reset:n;padding-left:0}
pre.code span{display:block;width:max-content;min-width:100%;padding-right:14px}
pre.code span::before{counter-increment:n;content:counter(n);display:inline-block;width:46px;
margin-right:14px;text-align:right;color:var(--dim);opacity:.65;user-select:none}
pre.code i{color:var(--dim);font-style:normal}pre.code b{color:var(--accent);font-weight:500}
pre.code span.hit{background:var(--mark)}
svg.memory{display:block;width:100%;min-width:760px;height:auto;padding:8px 6px}
svg text{fill:var(--dim);font-size:12px;font-family:inherit}
svg text.in{fill:#fff;pointer-events:none}
svg .grid{stroke:var(--line)}
svg .live{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3;opacity:.8}
svg rect:hover{opacity:.75}
.yes{color:var(--good)}.no{color:var(--dim)}.warn{color:var(--warn)}
.warning{padding:9px 14px;border:1px solid var(--line);border-left:3px solid var(--warn);
border-radius:6px;background:var(--card)}
footer{margin-top:36px;padding:16px 0 40px;border-top:1px solid var(--line);color:var(--dim);
font-size:13px}
@media(max-width:700px){main,header>div,nav>div{padding:0 14px}nav>div{gap:16px}h1{font-size:22px}
.tiles{grid-template-columns:repeat(2,1fr)}.tile{padding:10px 12px}.tile b{font-size:19px}
.share{grid-template-columns:118px 1fr 70px 50px;gap:8px}th,td{padding:7px 9px}
summary .right{float:none;display:block;margin:0}.facts{grid-template-columns:1fr;gap:0}
.facts dd{margin-bottom:6px}td.what{min-width:210px}}
@media print{nav,.tools{display:none}pre{max-height:none}}
)css";
}

std::string_view page_script() {
  return R"js(
"use strict";
const all=(q,r=document)=>Array.from(r.querySelectorAll(q));
for(const box of all("input[data-filter]")){
  const rows=all(box.dataset.filter),count=document.getElementById(box.dataset.count);
  box.addEventListener("input",()=>{
    const words=box.value.toLowerCase().split(/\s+/).filter(Boolean);let shown=0;
    for(const r of rows){const t=(r.dataset.text||r.textContent).toLowerCase();
      const hit=words.every(w=>t.includes(w));r.hidden=!hit;shown+=hit}
    if(count)count.textContent=words.length?shown+" of "+rows.length:""});
}
for(const th of all("th[data-key]"))th.querySelector("button").addEventListener("click",()=>{
  const table=th.closest("table"),body=table.tBodies[0],at=th.cellIndex;
  const was=th.getAttribute("aria-sort");
  const down=was?was==="ascending":th.dataset.key==="number"&&at>0;
  for(const o of all("th",table))o.removeAttribute("aria-sort");
  th.setAttribute("aria-sort",down?"descending":"ascending");
  const key=r=>{const v=r.cells[at].dataset.v??r.cells[at].textContent.trim();
    return th.dataset.key==="number"?(v===""?-1:Number(v)):v};
  const rows=Array.from(body.rows).map(r=>[key(r),r]);
  rows.sort((a,b)=>(a[0]<b[0]?-1:a[0]>b[0]?1:0)*(down?-1:1));
  body.append(...rows.map(x=>x[1]));
});
for(const b of all("button[data-fold]"))b.addEventListener("click",()=>{
  const d=all(b.dataset.fold),open=d.some(x=>!x.open&&!x.hidden);for(const x of d)x.open=open});
for(const b of all("button[data-go]"))b.addEventListener("click",()=>{
  for(const l of all("span.hit"))l.classList.remove("hit");
  const texts=all("#graph details");let first=null;
  for(const d of texts)for(const l of all("span[data-s]",d)){
    if(!l.dataset.s.split(", ").includes(b.dataset.go))continue;
    l.classList.add("hit");if(!first){first=l;d.open=true}}
  if(first)first.scrollIntoView({block:"center"})});
const reveal=()=>{const e=location.hash.length>1&&document.getElementById(location.hash.slice(1));
  if(!e)return;for(let d=e;d;d=d.parentElement)if(d.tagName==="DETAILS")d.open=true;
  e.scrollIntoView()};
addEventListener("hashchange",reveal);reveal();
)js";
}

}  // namespace inkle::driver
